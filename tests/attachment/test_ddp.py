"""The hook in every mode of DDP: sites are parameters, never buckets."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import pytest
import torch
import torch.distributed as dist
from support.processes import attempt, together
from support.user_loop import bits, build, loss_of, sgd, train
from torch import Tensor

import paftbench
from paftbench.attachment import relay as ddp_module
from paftbench.faults import Changed, DenseFault, Slice
from paftbench.faults.fault import Fault
from paftbench.mitigations import Mitigation
from paftbench.ranks.axis import Ranks
from paftbench.ranks.sites import BUILT_SITES, Site
from paftbench.step.aggregation import aggregate

STEPS = range(6)


@dataclass(frozen=True, kw_only=True)
class Mode:
    """How a user may have set up DDP and the loop."""

    options: dict[str, Any] = field(default_factory=dict)
    idle: bool = False
    checkpointed: bool = False
    dtype: torch.dtype = torch.float32
    rounds: int = 1
    sync: Literal["last", "all"] = "last"
    accumulation: int = 1


MODES = {
    "plain": Mode(),
    "gradient_as_bucket_view": Mode(options={"gradient_as_bucket_view": True}),
    "find_unused_parameters": Mode(options={"find_unused_parameters": True}, idle=True),
    "unused in bucket views": Mode(
        options={"find_unused_parameters": True, "gradient_as_bucket_view": True}, idle=True
    ),
    "static_graph": Mode(options={"static_graph": True}),
    "checkpointed": Mode(checkpointed=True),
    "checkpointed static_graph": Mode(
        options={"static_graph": True, "gradient_as_bucket_view": True}, checkpointed=True
    ),
    "no_sync": Mode(rounds=3),
    "accumulation without no_sync": Mode(rounds=2, sync="all", accumulation=2),
    "bf16": Mode(dtype=torch.bfloat16),
    "fp16": Mode(dtype=torch.float16),
    "fp64": Mode(dtype=torch.float64),
}
# Modes that change where gradients lie and when buckets are cut, not what they are.
ALIKE = ("gradient_as_bucket_view", "static_graph", "checkpointed", "checkpointed static_graph")


def zero_faults() -> list[Any]:
    return [
        paftbench.Fault(model, name=f"{model} {site}", degree=0, site=site)
        for model in ("bit_flip", "gaussian_noise", "stale_shard")
        for site in BUILT_SITES
    ]


def real_faults() -> list[Any]:
    return [
        paftbench.Fault("bit_flip", name="sent", degree=0.01, bits="mantissa", site="contribution"),
        paftbench.Fault("gaussian_noise", name="noise", degree=1e-2),
        paftbench.Fault("stale_shard", name="stale", degree=0.5),
        paftbench.Fault("bit_flip", name="weight", degree=0.01, bits="mantissa", site="parameter"),
        paftbench.Fault("gaussian_noise", name="moment", degree=1e-3, site="optimizer_state"),
    ]


def in_mode(mode: Mode, faults: list[Any] | None, *, exact: bool = False) -> tuple[list[bytes], Any]:
    """Train in a mode, attached or (`faults` None) not; the final bits and the strikes."""
    ddp, optimizer = built(mode)
    if faults is None:
        train(ddp, optimizer, STEPS, rounds=mode.rounds, sync=mode.sync)
        return bits(ddp), None
    with paftbench.attach(ddp, optimizer, faults=faults, accumulation=mode.accumulation, exact=exact) as attached:
        train(ddp, optimizer, STEPS, rounds=mode.rounds, sync=mode.sync)
    return bits(ddp), vars(attached.strikes)


def built(mode: Mode) -> tuple[Any, torch.optim.Optimizer]:
    ddp = build(idle=mode.idle, checkpointed=mode.checkpointed, dtype=mode.dtype, **mode.options)
    return ddp, sgd(ddp)


def mended(mode: Mode, *, overlap: bool) -> dict[str, Any]:
    """The same under noise and averaging of the whole state, after its last mean; divergence before and after it."""
    ddp, optimizer = built(mode)
    noise = paftbench.Fault("gaussian_noise", degree=1e-2)
    sync = paftbench.Mitigation("paft_sync", period=3, overlap=overlap, state="all")
    with paftbench.attach(
        ddp, optimizer, faults=[noise], mitigations=[sync], accumulation=mode.accumulation, exact=True
    ) as attached:
        train(ddp, optimizer, STEPS[:5], rounds=mode.rounds, sync=mode.sync)
        before = attached.divergence()
        train(ddp, optimizer, STEPS[5:], rounds=mode.rounds, sync=mode.sync)
    return {"bits": bits(ddp), "before": before, "after": attached.divergence(), "syncs": attached.syncs}


def every_mode() -> dict[str, Any]:
    found: dict[str, Any] = {"seen": buckets_seen()}
    for name, mode in MODES.items():
        found[name] = {
            "native": in_mode(mode, None),
            "zero": in_mode(mode, zero_faults()),
            "struck": in_mode(mode, real_faults(), exact=True),
            "mended": [mended(mode, overlap=overlap) for overlap in (False, True)],
        }
    found["rounded"] = in_mode(MODES["plain"], real_faults())
    return found


def buckets_seen() -> list[int]:
    """Buckets of each step's backward in the mode `plain`."""
    ddp = build()
    optimizer = sgd(ddp)
    seen = []
    with paftbench.attach(ddp, optimizer) as attached:
        reduce = attached._hooks.reduce
        count: list[bool] = []

        def counted(bucket: ddp_module.Bucket) -> Any:
            count.append(bucket.is_last)
            return reduce(bucket)

        attached._hooks.reduce = counted  # type: ignore[method-assign]
        for step in range(3):
            count.clear()
            train(ddp, optimizer, [step])
            seen.append(len(count))
            assert count == [False] * (len(count) - 1) + [True]
    return seen


@pytest.fixture(scope="module", params=[2, 3])
def modes(request: pytest.FixtureRequest) -> list[dict[str, Any]]:
    return together(every_mode, request.param)


def test_buckets_are_several_and_are_rebuilt_after_the_first_step(modes: list[dict[str, Any]]) -> None:
    for rank in modes:
        first, second, third = rank["seen"]
        assert second == third >= 3 and first != second


@pytest.mark.parametrize("mode", MODES)
def test_degree_zero_is_plain_ddp_bit_for_bit(modes: list[dict[str, Any]], mode: str) -> None:
    for rank in modes:
        native, zero, struck = (rank[mode][kind][0] for kind in ("native", "zero", "struck"))
        assert zero == native and struck != native
        assert rank[mode]["zero"][1] == {"drawn": 0, "landed": 0, "changed": 0, "discarded": 0}


@pytest.mark.parametrize("mode", MODES)
def test_strikes_land_once_a_step_and_all_but_those_on_an_unused_parameter(
    modes: list[dict[str, Any]], mode: str
) -> None:
    for rank in modes:
        strikes = rank[mode]["struck"][1]
        assert strikes["drawn"] > 1000 * len(STEPS) and strikes["changed"] > 0
        assert (strikes["landed"] < strikes["drawn"]) == MODES[mode].idle


@pytest.mark.parametrize("mode", ALIKE)
def test_where_gradients_lie_changes_no_strike(modes: list[dict[str, Any]], mode: str) -> None:
    for rank in modes:
        assert rank[mode]["struck"] == rank["plain"]["struck"]
        if len(modes) == 2:  # sums of two have one order
            assert rank["rounded"] == rank["plain"]["struck"]


@pytest.mark.parametrize("mode", MODES)
def test_averaging_heals_parameters_and_state_in_every_mode(modes: list[dict[str, Any]], mode: str) -> None:
    for rank in modes:
        for found, first, plain in zip(
            rank[mode]["mended"], modes[0][mode]["mended"], rank["plain"]["mended"], strict=True
        ):
            assert found["before"] > 0 and found["after"] < 1e-12 and found["syncs"] == 2
            assert found["bits"] == first["bits"]
            if mode in ALIKE:
                assert found["bits"] == plain["bits"]


def test_replicas_differ_after_strikes_on_results(modes: list[dict[str, Any]]) -> None:
    finals = [rank["plain"]["struck"][0] for rank in modes]
    assert all(final != finals[0] for final in finals[1:])


def test_the_hook_is_annotated_as_ddp_demands() -> None:
    annotations = ddp_module.relay_hook.__annotations__
    assert annotations["bucket"] is dist.GradBucket
    assert annotations["return"] == torch.futures.Future[torch.Tensor]


# --- -0 ----------------------------------------------------------------------------------------------------------


class Slope(torch.nn.Module):
    """A parameter whose gradient is the same number everywhere."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(50))

    def forward(self, slope: float) -> Tensor:
        return (self.weight * slope).sum()


def signs_of_zero(exact: bool) -> list[bool]:
    ddp = torch.nn.parallel.DistributedDataParallel(Slope())
    optimizer = torch.optim.SGD(ddp.parameters(), lr=1.0, momentum=0.9)
    with paftbench.attach(ddp, optimizer, faults=zero_faults(), exact=exact):
        with ddp.no_sync():
            ddp(-0.0).backward()
        ddp(-0.0).backward()
        grad = ddp.module.weight.grad
        assert grad is not None and (grad == 0).all()
        optimizer.step()
        return [bool(sign) for sign in torch.signbit(grad)]


@pytest.mark.parametrize("exact", [False, True])
def test_accumulated_gradients_of_minus_zero_keep_their_sign(exact: bool) -> None:
    for signs in together(signs_of_zero, 3, exact):
        assert all(signs)


# --- mitigations that aggregate ----------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Median(Mitigation):
    """The element-wise median, per bucket."""

    name: ClassVar[str] = "median"
    aggregates: ClassVar[bool] = True

    def aggregate(self, grad_Ln: Tensor, ranks: Ranks) -> Tensor:
        return ranks.gather(grad_Ln).median(dim=0, keepdim=True).values


@dataclass(frozen=True, kw_only=True)
class Halved(Mitigation):
    """Half the mean, per bucket: a rule that uses the mean of ours."""

    name: ClassVar[str] = "halved"
    aggregates: ClassVar[bool] = True

    def aggregate(self, grad_Ln: Tensor, ranks: Ranks) -> Tensor:
        return ranks.mean(grad_Ln) * 0.5


@dataclass(frozen=True, kw_only=True)
class Largest(Mitigation):
    """The gradient of the rank with the largest norm, which only the whole gradient tells."""

    name: ClassVar[str] = "largest"
    aggregates: ClassVar[bool] = True
    scope: ClassVar[Literal["element", "whole"]] = "whole"

    def aggregate(self, grad_Ln: Tensor, ranks: Ranks) -> Tensor:
        rows_WN = ranks.gather(grad_Ln)
        return rows_WN[int(rows_WN.double().square().sum(1).argmax())][None]


RULES = (Median(), Halved(), Largest())


def by_rules() -> dict[str, Any]:
    """Under each rule, `exact`: the bits after training, by bucket size."""
    found: dict[str, Any] = {}
    for rule in RULES:
        for idle in (False, True):
            for view in (False, True):
                ddp = build(idle=idle, find_unused_parameters=idle, gradient_as_bucket_view=view)
                optimizer = sgd(ddp)
                with paftbench.attach(ddp, optimizer, faults=real_faults(), mitigations=[rule], exact=True) as attached:
                    train(ddp, optimizer, STEPS)
                found[f"{rule.name} {idle} {view}"] = bits(ddp), vars(attached.strikes)
            found[f"{rule.name} {idle} whole"] = one_bucket(rule, idle)
    return found


def one_bucket(rule: Mitigation, idle: bool) -> Any:
    torch.manual_seed(5)
    small = build(idle=idle, find_unused_parameters=idle)
    ddp = torch.nn.parallel.DistributedDataParallel(small.module, find_unused_parameters=idle)
    del small
    optimizer = sgd(ddp)
    with paftbench.attach(ddp, optimizer, faults=real_faults(), mitigations=[rule], exact=True) as attached:
        train(ddp, optimizer, STEPS)
    return bits(ddp), vars(attached.strikes)


def test_rules_give_the_same_bits_whatever_the_buckets_are() -> None:
    for rank in together(by_rules, 3):
        for rule in RULES:
            for idle in (False, True):
                results = [rank[f"{rule.name} {idle} {how}"] for how in (False, True, "whole")]
                assert results[0] == results[1] == results[2], (rule.name, idle)
        assert len({str(rank[f"{rule.name} False False"][0]) for rule in RULES}) == 3


@dataclass(frozen=True, kw_only=True)
class Wrong(Mitigation):
    """A rule whose result is not a gradient."""

    name: ClassVar[str] = "wrong"
    aggregates: ClassVar[bool] = True
    how: str = "dtype"

    def aggregate(self, grad_Ln: Tensor, ranks: Ranks) -> Tensor:
        if self.how == "dtype":
            return ranks.mean(grad_Ln).double()
        return ranks.mean(grad_Ln)[:, 1:] if self.how == "short" else ranks.mean(grad_Ln).flatten()


@pytest.mark.parametrize("how", ["dtype", "short", "flat"])
def test_a_rule_with_a_result_of_the_wrong_shape_or_dtype_is_refused(how: str) -> None:
    with pytest.raises(
        ValueError, match=r"mitigation wrong: aggregate\(\) must return torch.float32 of shape \[1, 10\]"
    ):
        aggregate(torch.ones(2, 10), Ranks.virtual(2), Wrong(how=how))


# --- errors ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Failing(Mitigation):
    """A mitigation that fails at step 2."""

    name: ClassVar[str] = "failing"
    moment: str

    def on_gradients(self, step: Any) -> None:
        self._fail(step.index, "on_gradients")

    def on_step(self, step: Any) -> None:
        self._fail(step.index, "on_step")

    def _fail(self, index: int, moment: str) -> None:
        if index == 2 and moment == self.moment:
            raise ZeroDivisionError(f"mine, in {moment}")


@dataclass(frozen=True, kw_only=True)
class Broken(DenseFault):
    """A fault model that fails at step 2."""

    name: ClassVar[str] = "broken"
    units: ClassVar[Mapping[str, tuple[float, float]]] = {"times": (0.0, 1.0)}

    degree: float = 1.0
    unit: str = "times"

    def change(self, grad_N: Tensor, where: Slice, state: Any, draws: Any) -> Changed:
        if draws.step == 2:
            raise OverflowError("mine, in a fault")
        return Changed(0, ())


def error_of(mitigation: Mitigation, *faults: Fault) -> dict[str, Any]:
    """Where and how an exception of a mitigation or a fault surfaces, and what the next uses say."""
    ddp = build()
    optimizer = sgd(ddp)
    found: dict[str, Any] = {}
    attached = paftbench.attach(ddp, optimizer, faults=faults, mitigations=[mitigation])
    try:
        for step in STEPS:
            found["at"] = ("backward", step)
            loss = loss_of(ddp, step)
            loss.backward()
            found["at"] = ("step", step)
            optimizer.step()
    except Exception as error:
        found["error"] = f"{type(error).__name__}: {error}"
        found["notes"] = getattr(error, "__notes__", [])
    for use, again in {
        "forward": lambda: loss_of(ddp, 9),
        "attach": lambda: paftbench.attach(ddp, optimizer),
    }.items():
        try:
            again()
        except Exception as error:
            found[use] = f"{type(error).__name__}: {error}"
    attached.detach()
    return found


def test_an_exception_in_a_mitigation_leaves_backward_as_itself_and_the_next_use_says_why() -> None:
    for found in together(error_of, 2, Failing(moment="on_gradients")):
        assert found["at"] == ("backward", 2)
        assert found["error"] == "ZeroDivisionError: mine, in on_gradients"
        assert "this DDP model cannot be used any more" in found["notes"][0]
        for use in ("forward", "attach"):
            assert "left it unusable (ZeroDivisionError: mine, in on_gradients); build model and DDP anew" in found[use]


def test_an_exception_in_a_rule_leaves_backward_as_itself_and_the_next_use_says_why() -> None:
    for found in together(error_of, 2, Wrong()):
        assert found["at"] == ("backward", 0)
        assert found["error"].startswith("ValueError: mitigation wrong: aggregate() must return torch.float32")
        assert "left it unusable (ValueError: mitigation wrong" in found["forward"] and "forward" in found


@pytest.mark.parametrize("site", [Site.CONTRIBUTION, Site.RESULT])
def test_an_exception_in_a_fault_leaves_backward_as_itself_and_the_next_use_says_why(site: Site) -> None:
    fault = Fault(name="broken", model=Broken(), site=site)
    for found in together(error_of, 2, Mitigation(), fault):
        assert found["at"] == ("backward", 2) and found["error"] == "OverflowError: mine, in a fault"
        assert "left it unusable (OverflowError: mine, in a fault)" in found["forward"]


def test_an_exception_on_a_step_leaves_the_optimizers_step_as_itself() -> None:
    for found in together(error_of, 2, Failing(moment="on_step")):
        assert found["at"] == ("step", 2) and found["error"] == "ZeroDivisionError: mine, in on_step"
        assert "left the attachment within a step (ZeroDivisionError: mine, in on_step)" in found["forward"]


def struck_again() -> tuple[list[str], int, int]:
    """A loop that catches every error and goes on, past a mitigation that fails at its third step."""
    ddp = build()
    optimizer = sgd(ddp)
    noise = paftbench.Fault("gaussian_noise", degree=1e-2)
    attached = paftbench.attach(ddp, optimizer, faults=[noise], mitigations=[Failing(moment="on_step")])
    errors = []
    for step in STEPS:
        try:
            train(ddp, optimizer, [step])
        except Exception as error:
            errors.append(f"{type(error).__name__}: {error}")
    size = sum(p.numel() for p in ddp.parameters() if p.requires_grad)
    attached.detach()
    return errors, attached.strikes.drawn // size, attached.steps


def test_a_loop_that_goes_on_past_an_error_of_a_mitigation_makes_no_step_twice() -> None:
    for errors, struck, steps in together(struck_again, 2):
        assert len(errors) == len(STEPS) - 2 and errors[0] == "ZeroDivisionError: mine, in on_step"
        assert all("left the attachment within a step (ZeroDivisionError: mine" in error for error in errors[1:])
        assert (struck, steps) == (3, 2)


def rank_one_leaves(how: str) -> None:
    import os
    import signal

    ddp = build()
    optimizer = sgd(ddp)
    with paftbench.attach(ddp, optimizer, mitigations=[paftbench.Mitigation("paft_sync", period=1, overlap=True)]):
        train(ddp, optimizer, range(2))
        if dist.get_rank() == 1:
            if how == "raises":
                raise KeyError("mine")
            os.kill(os.getpid(), signal.SIGKILL)
        train(ddp, optimizer, range(2, 4))


@pytest.mark.parametrize(("how", "lost"), [("raises", ("raised", "KeyError: 'mine'")), ("dies", ("died", -9))])
def test_a_rank_that_is_lost_takes_the_others_with_it_at_once(how: str, lost: tuple[str, Any]) -> None:
    other, struck = attempt(rank_one_leaves, 2, how, limit_s=20)
    assert struck[0] == lost[0] and (lost[1] in struck[1] if how == "raises" else struck[1] == lost[1])
    assert other[0] == "raised" and "RuntimeError" in other[1]
