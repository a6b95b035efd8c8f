"""L ranks in one process: ordinary modules whose parameters are views into shared blocks."""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf, nan
from typing import Any, ClassVar, Literal

import pytest
import torch
from torch import Tensor, nn

import paftbench
from paftbench.faults import Changed, DenseFault, Draws, Slice
from paftbench.faults.fault import Fault
from paftbench.mitigations import Mitigation, Step
from paftbench.ranks.axis import Ranks
from paftbench.ranks.layout import trainable
from paftbench.ranks.sites import Site
from paftbench.records.trial import OptimizerConfig
from paftbench.step.nsr import Realised
from paftbench.training.optimizers import optimizer_of
from paftbench.training.virtual import Virtual


class Net(nn.Module):
    """Two layers with dropout and BatchNorm, a number, and a layer used only where `extra` says so."""

    def __init__(self, *, mixed: bool = False) -> None:
        super().__init__()
        self.first = nn.Linear(6, 8)
        self.norm = nn.BatchNorm1d(8)
        self.sometimes = nn.Linear(8, 8, dtype=torch.float64 if mixed else None)
        self.second = nn.Linear(8, 2)
        self.scale = nn.Parameter(torch.tensor(1.0))

    def forward(self, x: Tensor, *, extra: bool) -> Tensor:
        hidden = nn.functional.dropout(self.norm(torch.relu(self.first(x))), 0.2) * self.scale
        if extra:
            hidden = hidden + self.sometimes(hidden.to(self.sometimes.weight.dtype)).to(hidden.dtype)
        return self.second(hidden)


def virtual(
    world_size: int, *, optimizer: str = "sgd", model: nn.Module | None = None, split: bool = False, **options: Any
) -> Virtual:
    torch.manual_seed(1)
    config = OptimizerConfig(name=optimizer, lr=0.05)  # type: ignore[arg-type]
    ranks = options.pop("ranks", None) or Ranks.virtual(world_size)
    seeds = [100 + rank for rank in range(world_size)]
    return Virtual(model or Net(), optimizer_of(config), ranks, rank_seeds=seeds, split=split, **options)


def loss_of(module: nn.Module, rank: int, step: int, extra: bool = True) -> Tensor:
    x = torch.randn(5, 6, generator=torch.Generator().manual_seed(1000 * step + rank))
    return module(x, extra=extra).square().mean()


def train(placement: Virtual, steps: Sequence[int], users: Sequence[int] | None = None) -> None:
    """Train; only the ranks in `users` (None: all) use the layer `sometimes`."""
    for step in steps:
        placement.backward(lambda m, r, step=step: loss_of(m, r, step, users is None or r in users))
        placement.update()


def flat(module: nn.Module) -> Tensor:
    return torch.cat([p.detach().double().flatten() for _, p in trainable(module)])


@pytest.mark.parametrize("split", [False, True])
@pytest.mark.parametrize("optimizer", ["sgd", "adam", "adamw"])
def test_one_optimizer_over_the_blocks_gives_the_bits_of_one_for_each_rank(optimizer: str, split: bool) -> None:
    placement = virtual(3, optimizer=optimizer, split=split)
    copies = [copy.deepcopy(placement.spare) for _ in range(3)]
    config = OptimizerConfig(name=optimizer, lr=0.05)  # type: ignore[arg-type]
    optimizers = [optimizer_of(config)([p for _, p in trainable(m)]) for m in copies]
    states = [torch.Generator().manual_seed(100 + rank).get_state() for rank in range(3)]
    train(placement, range(6))
    for step in range(6):
        for rank, module in enumerate(copies):
            optimizers[rank].zero_grad()
            torch.set_rng_state(states[rank])
            loss_of(module, rank, step).backward()
            states[rank] = torch.get_rng_state()
        for parameters in zip(*(module.parameters() for module in copies), strict=True):
            third = [p.grad * (1.0 / 3) for p in parameters if p.grad is not None]
            for p in parameters:
                p.grad = third[0] + third[1] + third[2]
        for one in optimizers:
            one.step()
    for ours, theirs in zip(placement.modules, copies, strict=True):
        assert torch.equal(flat(ours), flat(theirs))
        assert all(torch.equal(a, b) for a, b in zip(ours.buffers(), theirs.buffers(), strict=True))


def test_without_faults_replicas_stay_equal_and_their_buffers_and_dropout_do_not() -> None:
    placement = virtual(4)
    train(placement, range(3))
    first, *others = placement.modules
    assert all(torch.equal(flat(first), flat(other)) for other in others)
    means = {float(module.norm.running_mean.sum()) for module in placement.modules}  # type: ignore[union-attr]
    assert len(means) == 4


class Hollow(nn.Module):
    """A parameter without elements between two that have some."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Parameter(torch.randn(5))
        self.hollow = nn.Parameter(torch.randn(0))
        self.last = nn.Parameter(torch.randn(1))

    def forward(self) -> Tensor:
        return self.first.square().sum() + self.hollow.sum() + self.last.square().sum()


@pytest.mark.parametrize("split", [False, True])
def test_a_parameter_without_elements_is_trained_and_struck_as_if_it_were_not_there(split: bool) -> None:
    faults = [
        paftbench.Fault("gaussian_noise", name="std", degree=0.1),
        paftbench.Fault("gaussian_noise", name="rms", unit="rms", degree=0.1, site="contribution"),
        paftbench.Fault("bit_flip", degree=0.5, bits="mantissa"),
        paftbench.Fault("stale_shard", degree=0.5),
        paftbench.Fault("gaussian_noise", name="weight", unit="rms", degree=0.1, site="parameter"),
        paftbench.Fault("bit_flip", name="moment", degree=0.5, bits="mantissa", site="optimizer_state"),
    ]
    sync = paftbench.Mitigation("paft_sync", period=2, state="all")
    placement = virtual(3, model=Hollow(), split=split, faults=faults, mitigations=[sync])
    for _ in range(4):
        placement.backward(lambda module, rank: module())
        placement.update()
    counts = placement.pipeline.injector.counts
    assert counts.drawn == counts.landed > 2 * 4 * 3 * 6


class Idle(nn.Module):
    """Gradients of ones on one parameter, and a larger one that no step uses."""

    def __init__(self) -> None:
        super().__init__()
        self.idle = nn.Parameter(torch.zeros(30_000))
        self.used = nn.Parameter(torch.zeros(10_000))

    def forward(self) -> Tensor:
        return self.used.sum()


@pytest.mark.parametrize("std", [0.1, 100.0])
@pytest.mark.parametrize(("site", "share"), [("result", 1.0), ("contribution", 0.5)])
def test_nsr_is_the_noise_that_reached_the_gradient_over_the_unstruck_mean(site: str, share: float, std: float) -> None:
    faults = [paftbench.Fault("gaussian_noise", degree=std, site=site)]
    placement = virtual(4, model=Idle(), split=True, faults=faults)
    placement.pipeline.measuring = True
    placement.backward(lambda module, rank: module())
    assert placement.pipeline.measured.nsr == pytest.approx(share * std, rel=0.02)


class Flip(DenseFault):
    """Every element changes its sign, while `degree` is not 0."""

    name = "flip"
    units: ClassVar[Mapping[str, tuple[float, float]]] = {"on": (0.0, 1.0)}
    deterministic = True

    def change(self, grad_N: Tensor, where: Slice, state: dict[str, Tensor], draws: Draws) -> Changed:
        before_N = grad_N.clone()
        return Changed.between(before_N, grad_N.neg_(), where)


@pytest.mark.parametrize("split", [False, True])
@pytest.mark.parametrize(
    ("sites", "expected"),
    [
        ([Site.CONTRIBUTION], 2.0),
        ([Site.RESULT], 2.0),
        ([Site.RESULT, Site.RESULT], 0.0),
        ([Site.CONTRIBUTION, Site.CONTRIBUTION], 0.0),
        ([Site.CONTRIBUTION, Site.RESULT], 0.0),
        ([Site.RESULT, Site.RESULT, Site.RESULT], 2.0),
    ],
)
def test_nsr_is_the_norm_of_what_all_strikes_together_changed(sites: list[Site], expected: float, split: bool) -> None:
    flip = Flip(degree=1.0, unit="on")
    faults = [Fault(name=f"flip {number}", model=flip, site=site) for number, site in enumerate(sites)]
    placement = virtual(3, split=split, faults=faults)
    placement.pipeline.measuring = True
    train(placement, range(1))
    assert placement.pipeline.measured.nsr == pytest.approx(expected, abs=1e-6)


def test_what_is_infinite_and_was_not_struck_is_no_noise() -> None:
    realised = Realised(Ranks.virtual(1))
    before = torch.tensor([[inf, -inf, nan, 1.0]])
    after = torch.tensor([[inf, -inf, nan, 4.0]])
    assert realised.ratio([(0, after)], [before], 1.5) == 2.0
    assert realised.ratio([(0, torch.tensor([[0.0, -inf, nan, 1.0]]))], [before], 1.5) == inf


def test_a_mean_that_is_pending_at_the_end_is_part_of_the_last_steps_record() -> None:
    faults = [paftbench.Fault("gaussian_noise", degree=0.1)]
    sync = paftbench.Mitigation("paft_sync", period=3, overlap=True)
    placement = virtual(3, faults=faults, mitigations=[sync])
    placement.pipeline.measuring = True
    train(placement, range(3))
    before = placement.pipeline.measured.divergence
    placement.pipeline.flush()
    measured = placement.pipeline.measured
    assert measured.synced and measured.divergence_before == before and measured.divergence == 0.0


def test_a_module_is_an_ordinary_module_whose_parameters_the_optimizer_updates() -> None:
    placement = virtual(2, split=False)
    block = placement.replicas.parameters[0]
    assert block.shape == (2, placement.layout.size)
    with torch.no_grad():
        placement.modules[1].first.weight.fill_(7.0)  # type: ignore[union-attr,operator]
    slot = placement.layout.by_name["first.weight"]
    first = block[:, slot.start : slot.stop]
    assert (first[1] == 7.0).all() and not (first[0] == 7.0).any()


def moved(module: nn.Module) -> None:
    module.first.weight.data = module.first.weight.data.clone()  # type: ignore[union-attr,operator]


def assigned(module: nn.Module) -> None:
    state = {name: value.clone() for name, value in module.state_dict().items()}
    module.load_state_dict(state, assign=True)


@pytest.mark.parametrize("split", [False, True])
@pytest.mark.parametrize(("lose", "name"), [(moved, "first.weight"), (assigned, "scale")])
def test_a_parameter_that_lost_its_place_in_the_block_is_an_error(lose: Any, name: str, split: bool) -> None:
    placement = virtual(2, split=split)
    lose(placement.modules[1])
    with pytest.raises(RuntimeError, match=f"parameter '{name}' is no longer the view that the optimizer updates"):
        train(placement, range(1))


def test_gradients_set_to_none_by_the_model_are_collected_all_the_same() -> None:
    placement, other = virtual(2), virtual(2)
    for module in other.modules:
        module.zero_grad(set_to_none=True)
    train(placement, range(3))
    train(other, range(3))
    assert torch.equal(flat(placement.modules[0]), flat(other.modules[0]))


def test_a_parameter_without_gradient_is_an_error_where_the_workload_does_not_say_so() -> None:
    with pytest.raises(RuntimeError, match=r"'sometimes.weight' got no gradient; a workload whose steps may leave"):
        train(virtual(2), range(1), users=[])


def test_a_parameter_that_one_rank_uses_is_updated_on_all_and_one_that_none_uses_on_none() -> None:
    placement = virtual(2, split=True)
    before = placement.modules[0].sometimes.weight.detach().clone()  # type: ignore[union-attr,operator]
    train(placement, range(2), users=[])
    assert all(torch.equal(module.sometimes.weight, before) for module in placement.modules)  # type: ignore[union-attr,arg-type]
    train(placement, range(2, 4), users=[1])
    first, second = (module.sometimes.weight.detach() for module in placement.modules)  # type: ignore[union-attr,operator]
    assert torch.equal(first, second) and not torch.equal(first, before)


@dataclass(frozen=True, kw_only=True)
class Norms(Mitigation):
    """The mean, noting the size and the norm of every gradient it is given."""

    name: ClassVar[str] = "norms"
    aggregates: ClassVar[bool] = True
    scope: ClassVar[Literal["element", "whole"]] = "whole"

    def aggregate(self, grad_Ln: Tensor, ranks: Ranks) -> Tensor:
        SEEN.append((grad_Ln.shape[1], [float(row.double().norm()) for row in grad_Ln]))
        return ranks.mean(grad_Ln)


SEEN: list[tuple[int, list[float]]] = []


@pytest.mark.parametrize("users", [None, [], [1]])
def test_a_rule_over_the_whole_gradient_sees_all_of_it_once_a_step(users: list[int] | None) -> None:
    SEEN.clear()
    placement = virtual(2, split=True, mitigations=[Norms()])
    train(placement, range(3), users)
    plain = virtual(2, split=True)
    train(plain, range(3), users)
    assert [size for size, _ in SEEN] == [placement.layout.size] * 3
    assert torch.equal(flat(placement.modules[0]), flat(plain.modules[0]))


def test_parameters_of_two_types_are_struck_averaged_and_synchronised() -> None:
    noise = paftbench.Fault("gaussian_noise", degree=0.1)
    sync = paftbench.Mitigation("paft_sync", period=3, state="all")
    placement = virtual(3, optimizer="adam", model=Net(mixed=True), faults=[noise], mitigations=[sync])
    assert [block.dtype for block in placement.replicas.parameters] == [torch.float32, torch.float64, torch.float32]
    train(placement, range(5))
    assert placement.pipeline.injector.counts.landed == 5 * 3 * placement.layout.size
    assert not torch.equal(flat(placement.modules[0]), flat(placement.modules[1]))
    train(placement, range(5, 6))
    for kind in (placement.replicas.parameters, placement.replicas.moments):
        assert all(torch.equal(block[0], block[row]) for block in kind for row in (1, 2))


def test_256_ranks_live_in_one_process() -> None:
    noise = paftbench.Fault("gaussian_noise", degree=0.1)
    sync = paftbench.Mitigation("paft_sync", period=2)
    ranks = Ranks.virtual(256, exact=True)
    placement = virtual(256, ranks=ranks, faults=[noise], mitigations=[sync])
    placement.pipeline.measuring = True
    train(placement, range(2))
    measured = placement.pipeline.measured
    assert measured.divergence == 0.0 and measured.divergence_before is not None and measured.divergence_before > 0
    assert placement.pipeline.injector.counts.landed == 2 * 256 * placement.layout.size
    mean = placement.replicas.parameters[0]
    assert all(torch.equal(mean[0], row) for row in mean)


@dataclass(frozen=True, kw_only=True)
class Watching(Mitigation):
    """Notes what a mitigation sees of a step."""

    name: ClassVar[str] = "watching"

    def on_step(self, step: Step) -> None:
        LOOKS.append((step.index, len(step.parameters), len(step.moments), [tuple(b.shape) for b in step.gradients]))


LOOKS: list[Any] = []


@pytest.mark.parametrize("split", [False, True])
def test_moments_come_one_kind_after_the_other_without_step_counters(split: bool) -> None:
    placement = virtual(2, optimizer="adam", split=split)
    train(placement, range(2))
    moments = placement.replicas.moments
    owners = [owner for _, owner in placement.replicas.owners]
    assert len(moments) == 2 * len(owners)
    state = placement.optimizer.state
    for kind, part in (("exp_avg", moments[: len(owners)]), ("exp_avg_sq", moments[len(owners) :])):
        for owner, block in zip(owners, part, strict=True):
            assert block.data_ptr() == state[owner][kind].data_ptr()


def test_a_mitigation_sees_live_blocks_with_a_leading_rank_axis() -> None:
    LOOKS.clear()
    placement = virtual(2, split=True, mitigations=[Watching()])
    train(placement, range(2), users=[])
    index, parameters, moments, gradients = LOOKS[-1]
    assert (index, parameters, moments) == (1, 9, 7) and len(gradients) == 7
    assert all(shape[0] == 2 for shape in gradients)
