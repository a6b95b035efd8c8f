"""Strikes on the ranks' memory: what exists to be struck, under which name, and what is refused."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from support.injecting import gradients, in_slots, layout_of, same_bits, strike
from support.processes import together
from support.user_loop import build, loss_of, sgd
from torch import Tensor, nn

import paftbench
from paftbench import specs
from paftbench.faults.fault import Fault
from paftbench.faults.injector import Injector
from paftbench.ranks.axis import Ranks
from paftbench.ranks.layout import Layout, Slot
from paftbench.ranks.replicas import Memory
from paftbench.ranks.sites import Site
from paftbench.records.trial import OptimizerConfig
from paftbench.training.optimizers import optimizer_of
from paftbench.training.virtual import Virtual

Optimizers = Callable[[list[nn.Parameter]], torch.optim.Optimizer]


class Pair(nn.Module):
    """Two parameters, one of which the first steps leave unused."""

    def __init__(self) -> None:
        super().__init__()
        self.late = nn.Parameter(torch.ones(30))
        self.used = nn.Parameter(torch.ones(50))


def pair(faults: list[Fault], optimizer_of_: Optimizers | None = None, dtype: torch.dtype = torch.float32) -> Virtual:
    optimizer_of_ = optimizer_of_ or optimizer_of(OptimizerConfig(momentum=0.9))
    return Virtual(
        Pair().to(dtype), optimizer_of_, Ranks.virtual(2), rank_seeds=range(2), faults=faults, split=True
    )  # fmt: skip


def backward(virtual: Virtual, *, late: bool = False) -> None:
    def loss(module: nn.Module, rank: int) -> Tensor:
        assert isinstance(module, Pair)
        return module.used.square().sum() + (module.late.square().sum() if late else 0.0)

    virtual.backward(loss)


def flips(site: str, **fields: Any) -> Fault:
    return specs.fault("bit_flip", **{"name": site, "degree": 0.2, "bits": "mantissa", "site": site, **fields})


class Scalar(torch.optim.Optimizer):
    """An optimizer that keeps one number per parameter."""

    def __init__(self, parameters: list[nn.Parameter]) -> None:
        super().__init__(parameters, {"lr": 0.1})

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for parameter in group["params"]:
                self.state[parameter] = {"step": torch.tensor(1.0), "norm": torch.tensor(2.0)}


class Master(torch.optim.Optimizer):
    """An optimizer that keeps copies of its parameters in double precision."""

    def __init__(self, parameters: list[nn.Parameter]) -> None:
        super().__init__(parameters, {"lr": 0.1})

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self.state[parameter]["master"] = parameter.detach().double()


def test_state_that_does_not_exist_yet_is_not_there_to_strike() -> None:
    virtual = pair([flips("parameter"), flips("optimizer_state", name="state")])
    backward(virtual)
    virtual.pipeline.updated()  # the update was skipped
    rows = virtual.pipeline.injector.drain()
    assert {row["site"] for row in rows} == {"parameter"} and all(row["landed"] for row in rows)
    assert virtual.pipeline.injector.drawn_now == len(rows) > 0
    backward(virtual)
    virtual.update()
    rows = [row for row in virtual.pipeline.injector.drain() if row["fault"] == "state"]
    assert {(row["parameter"], row["landed"]) for row in rows} == {
        ("used:momentum_buffer", True), ("late:momentum_buffer", False)
    }  # fmt: skip
    backward(virtual, late=True)
    virtual.update()
    rows = [row for row in virtual.pipeline.injector.drain() if row["fault"] == "state"]
    assert {row["parameter"] for row in rows} == {"used:momentum_buffer", "late:momentum_buffer"}
    assert all(row["landed"] for row in rows)


def test_a_parameter_that_no_rank_used_has_memory_that_is_struck() -> None:
    virtual = pair([flips("parameter")])
    start = virtual.replicas.parameters[0].clone()
    backward(virtual)
    virtual.update()
    struck = {row["parameter"] for row in virtual.pipeline.injector.drain()}
    assert struck == {"late", "used"} and not torch.equal(virtual.replicas.parameters[0], start)


def test_strikes_of_a_step_are_the_same_whether_or_not_some_state_exists() -> None:
    places = []
    for late in (False, True):
        virtual = pair([flips("optimizer_state")])
        backward(virtual, late=late)
        virtual.update()
        rows = virtual.pipeline.injector.drain()
        places.append(sorted((row["rank"], row["parameter"], row["index"]) for row in rows))
    assert places[0] == places[1] != []


def test_dense_strikes_on_state_are_logged_by_their_kind() -> None:
    adam = optimizer_of(OptimizerConfig(name="adam"))
    noise = specs.fault("gaussian_noise", degree=0.1, unit="rms", site="optimizer_state", ranks=[1])
    virtual = pair([noise], adam)
    backward(virtual)
    virtual.update()
    rows = virtual.pipeline.injector.drain()
    expected = [(f"*:{kind}", landed) for kind in ("exp_avg", "exp_avg_sq") for landed in (True, False)]
    assert [(row["parameter"], row["landed"]) for row in rows] == expected
    assert [row["elements"] for row in rows] == [50, 30, 50, 30] and {row["rank"] for row in rows} == {1}
    for row, moment in zip(rows[::2], virtual.replicas.moments, strict=True):
        change = moment[1] - moment[0]
        assert row["norm"] == pytest.approx(float(change.double().norm()), rel=1e-4)
        assert float(change.norm() / moment[0].norm()) == pytest.approx(0.1, rel=0.4)


@pytest.mark.parametrize("unit", ["per_element", "per_bit"])
def test_state_is_struck_in_the_type_it_is_kept_in(unit: str) -> None:
    high = specs.fault("bit_flip", degree=0.2, unit=unit, bits=50, site="optimizer_state")  # fp32 has no bit 50
    virtual = pair([high, flips("parameter")], Master)
    backward(virtual)
    virtual.update()
    rows = [row for row in virtual.pipeline.injector.drain() if row["landed"]]
    widths = {row["site"]: len(row["bits_before"].removeprefix("0x")) for row in rows}
    assert widths == {"optimizer_state": 16, "parameter": 8}
    assert {row["bit"] for row in rows if row["site"] == "optimizer_state"} == {50}


def test_a_bit_that_the_state_has_not_is_refused_when_the_state_is_there() -> None:
    virtual = pair([specs.fault("bit_flip", degree=0.2, bits=50, site="optimizer_state")])
    backward(virtual)
    with pytest.raises(ValueError, match="float32 has bits 0 to 31, got 50"):
        virtual.update()


def test_a_stale_shard_of_memory_is_that_of_the_step_before_and_zeros_before_the_first() -> None:
    stale = [
        specs.fault(
            "stale_shard", name=site, degree=1.0, site=site, ranks=[1], schedule={"kind": "steps", "steps": [2]}
        )
        for site in ("parameter", "optimizer_state")
    ]
    virtual, clean = pair(stale), pair([])
    for step in range(3):
        backward(virtual, late=step == 2)
        backward(clean, late=step == 2)
        if step == 2:
            past = [block[0].clone() for block in (*clean.replicas.parameters, *clean.replicas.moments)]
        virtual.update()
        clean.update()
    after, healthy = ([*p.replicas.parameters, *p.replicas.moments] for p in (virtual, clean))
    late, used, late_momentum, used_momentum = (block[1] for block in after)
    assert same_bits(late, past[0]) and same_bits(used, past[1]) and same_bits(used_momentum, past[2])
    assert len(past) == 3 and not bool(late_momentum.any())
    assert all(same_bits(block[0], other[0]) for block, other in zip(after, healthy, strict=True))


@pytest.mark.parametrize("name", ["sgd", "adam", "adamw"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_a_trials_optimizer_keeps_the_state_that_its_configuration_names(
    name: str, dtype: torch.dtype, momentum: float
) -> None:
    config = OptimizerConfig(name=name, momentum=momentum)  # type: ignore[arg-type]
    virtual = pair([], optimizer_of(config), dtype)
    backward(virtual, late=True)
    virtual.update()
    if config.state_kinds:
        memories = list(virtual.replicas.memory({Site.OPTIMIZER_STATE}))
        assert [memory.kind for memory in memories] == list(config.state_kinds)
        assert all([start for start, _ in memory.blocks] == [0, 30] for memory in memories)
    else:
        assert virtual.replicas.moments == []


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_an_optimizer_without_state_is_refused_at_once(dtype: torch.dtype) -> None:
    plain = optimizer_of(OptimizerConfig(momentum=0.0))
    with pytest.raises(
        ValueError, match=r"^site 'optimizer_state': \w*SGD with momentum 0 keeps no element-wise state"
    ):
        pair([flips("optimizer_state")], plain, dtype)
    pair([flips("parameter")], plain, dtype)


def test_an_optimizer_that_turns_out_to_keep_no_element_wise_state_is_refused_at_its_first_update() -> None:
    virtual = pair([flips("optimizer_state")], Scalar)
    backward(virtual)
    with pytest.raises(ValueError, match="site 'optimizer_state': Scalar keeps no element-wise state"):
        virtual.update()


@pytest.mark.parametrize("site", ["reduce_scatter", "all_gather", "sync"])
def test_a_site_that_is_not_built_is_refused_however_the_fault_was_made(site: str) -> None:
    built = flips("result")
    with pytest.raises(ValueError, match=f"fault 'result': site '{site}' cannot be struck yet"):
        Injector([Fault(name="result", model=built.model, site=Site(site))], layout_of(), Ranks.virtual(1), seed=0)


def test_an_injector_that_has_run_goes_back_to_a_state_before_its_first_kind() -> None:
    layout = layout_of()
    grads = gradients(layout, steps=6, world_size=1)
    one = specs.fault("stale_shard", degree=0.4, site="optimizer_state")
    through = strike([one], layout, grads)
    used = strike([one], layout, grads).injector
    used.load_state_dict(Injector([one], layout, Ranks.virtual(1), seed=0).state_dict())
    again = strike([one], layout, grads, injector=used)
    assert same_bits(again.after_TWN, through.after_TWN) and again.rows == through.rows


def test_neighbours_of_different_types_are_struck_each_in_its_own() -> None:
    dtypes = {"a": torch.bfloat16, "b": torch.float32, "c": torch.bfloat16}
    slots = [
        Slot(name=name, start=20 * i, stop=20 * i + 20, shape=(20,), dtype=dtype)
        for i, (name, dtype) in enumerate(dtypes.items())
    ]
    noise = specs.fault("gaussian_noise", degree=1e-2)
    struck = []
    for separate in (False, True):
        injector = Injector([noise], Layout(slots), Ranks.virtual(1), seed=0, separate=separate)
        values = [torch.ones(20, dtype=dtype) for dtype in dtypes.values()]
        injector.begin(0)
        injector.strike(Site.RESULT, 0, [(slot.start, value) for slot, value in zip(slots, values, strict=True)])
        injector.end()
        struck.append((values, injector.counts))
    assert all(same_bits(one, other) for one, other in zip(struck[0][0], struck[1][0], strict=True))
    assert struck[0][1] == struck[1][1]


def test_memory_of_another_cut_is_struck_the_same() -> None:
    layout = layout_of()
    grads = gradients(layout, steps=2)
    faults = [flips("optimizer_state"), specs.fault("gaussian_noise", degree=0.1, site="optimizer_state")]
    whole, cut = strike(faults, layout, grads), strike(faults, layout, grads, cut=in_slots)
    assert same_bits(whole.after_TWN, cut.after_TWN) and whole.rows == cut.rows
    values_LN = grads[0].clone()
    other = Injector(faults, layout, Ranks.virtual(4), seed=0)
    other.begin(0)
    other.end()
    other.strike_memory(Memory(site=Site.OPTIMIZER_STATE, kind="another", blocks=[(0, values_LN)]))
    assert not same_bits(values_LN, whole.after_TWN[0])


@pytest.mark.gpu
@pytest.mark.parametrize("site", ["parameter", "optimizer_state"])
def test_memory_on_an_accelerator_is_struck_at_the_same_places(site: str) -> None:
    layout = layout_of()
    grads = gradients(layout, steps=3)
    faults = [flips(site), specs.fault("stale_shard", degree=0.5, site=site)]
    there, here = strike(faults, layout, grads.cuda()), strike(faults, layout, grads)
    assert same_bits(there.after_TWN.cpu(), here.after_TWN) and there.injector.counts == here.injector.counts
    sparse = [[row for row in struck.rows if row["index"] is not None] for struck in (there, here)]
    assert sparse[0] == sparse[1] != []


# --- attached ----------------------------------------------------------------------------------------------------


def attached_skips() -> dict[str, Any]:
    """A loop that throws away its first two gradients."""
    ddp = build()
    optimizer = sgd(ddp)
    faults = [flips("parameter"), flips("optimizer_state", name="state")]
    drawn, rows = [], []
    with paftbench.attach(ddp, optimizer, faults=faults) as attached:
        injector = attached._hooks.pipeline.injector
        for step in range(4):
            optimizer.zero_grad()
            loss_of(ddp, step).backward()
            if step > 1:
                optimizer.step()
        assert attached.steps == 2
        rows = injector.drain()
    for site in ("parameter", "optimizer_state"):
        drawn.append([sum(row["step"] == step for row in rows if row["site"] == site) for step in range(4)])
    try:
        plain = build()
        paftbench.attach(plain, torch.optim.SGD(plain.parameters(), lr=0.1), faults=faults)
        refused = ""
    except ValueError as error:
        refused = str(error)
    return {"drawn": drawn, "refused": refused, "landed": all(row["landed"] for row in rows)}


def test_the_memory_of_an_attached_loop_is_struck_at_every_update_not_where_gradients_are_thrown_away() -> None:
    for found in together(attached_skips, 2):
        weights, moments = found["drawn"]
        assert min(weights[:2]) > 0 and min(moments[:2]) > 0 and found["landed"]
        assert weights[2:] == moments[2:] == [0, 0]
        assert found["refused"].startswith("site 'optimizer_state': SGD with momentum 0 keeps no element-wise state")
