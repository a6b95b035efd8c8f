"""`paftbench.attach` on a loop that scales its loss: ranks skip together, mitigations see gradients unscaled."""

from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest
import torch
import torch.distributed as dist
from support.processes import attempt, together
from support.user_loop import bits, build, loss_of, sgd
from test_attach import refusal
from torch import nn
from torch.amp import GradScaler
from torch.nn.parallel import DistributedDataParallel

import paftbench
from paftbench.mitigations import Mitigation, Step

SCALE = 2.0**6  # some gradients times this lie within [1, 2), where a flip of the top exponent bit gives inf or NaN


def flip(*steps: int, **fields: Any) -> Any:
    """What rank 1 alone receives at some steps: every element of a layer with its top exponent bit flipped."""
    fixed = {"degree": 1.0, "bits": 30, "ranks": (1,), "parameters": "layers.*", "name": "flip"}
    return paftbench.Fault("bit_flip", **{**fixed, **fields}, schedule={"kind": "steps", "steps": list(steps)})


def noise(std: float, **fields: Any) -> Any:
    return paftbench.Fault("gaussian_noise", degree=std, unit="std", site="result", **fields)


def scaler_of(scale: float = SCALE, **options: Any) -> GradScaler:
    return GradScaler("cpu", init_scale=scale, **options)


def train(
    model: Any,
    optimizer: torch.optim.Optimizer,
    scaler: GradScaler,
    steps: range,
    *,
    clip: float | None = None,
    rounds: int = 1,
    quiet: bool = True,
    scale_at: list[float] | None = None,
) -> None:
    """A stranger's loop, as torch documents it; with `clip`, gradients are unscaled by hand and their norm clipped."""
    for step in steps:
        optimizer.zero_grad()
        for part in range(rounds):
            with model.no_sync() if quiet and part < rounds - 1 else nullcontext():
                scaler.scale(loss_of(model, step, part)).backward()
        if clip is not None:
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), clip)
        scaler.step(optimizer)
        scaler.update()
        if scale_at is not None:
            scale_at.append(scaler.get_scale())


OPTIMIZERS: dict[str, Any] = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01),
    "fused sgd": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, fused=True),
    "fused adam": lambda p: torch.optim.Adam(p, lr=0.01, fused=True),
}


def optimizer_of(kind: str, model: nn.Module) -> torch.optim.Optimizer:
    optimizer: torch.optim.Optimizer = OPTIMIZERS[kind]([p for p in model.parameters() if p.requires_grad])
    return optimizer


# --- nothing to do: plain DDP --------------------------------------------------------------------------------------

LOOPS: dict[str, dict[str, Any]] = {
    "step alone": {},
    "unscaled and clipped": {"clip": 0.5},
    "no_sync": {"rounds": 3},
    "accumulation": {"rounds": 2, "quiet": False},
}


CASES = [(kind, loop, True) for kind in ("sgd", "fused adam") for loop in LOOPS]
CASES += [("adam", "step alone", True), ("fused sgd", "unscaled and clipped", True), ("sgd", "step alone", False)]


def trained(attached: bool, kind: str, loop: dict[str, Any], enabled: bool) -> Any:
    ddp = build()
    optimizer, scaler = optimizer_of(kind, ddp), scaler_of(growth_interval=3, enabled=enabled)
    if not attached:
        train(ddp, optimizer, scaler, range(5), **loop)
        return bits(ddp), scaler.state_dict()
    accumulation = 1 if loop.get("quiet", True) else loop["rounds"]
    with paftbench.attach(
        ddp, optimizer, scaler, faults=[noise(0.0), flip(degree=0.0)], accumulation=accumulation
    ) as attachment:
        train(ddp, optimizer, scaler, range(5), **loop)
    assert attachment.steps == 5 and not {"step", "unscale_"} & set(vars(scaler))
    return bits(ddp), scaler.state_dict()


def alike() -> list[tuple[Any, Any, Any]]:
    return [
        (case, *(trained(attached, case[0], LOOPS[case[1]], case[2]) for attached in (True, False))) for case in CASES
    ]


@pytest.mark.parametrize("world_size", [2, 3])
def test_degree_zero_under_a_scaler_is_plain_ddp_bit_for_bit(world_size: int) -> None:
    for rank in together(alike, world_size):
        for case, attached, plain in rank:
            assert attached == plain, case


# --- an infinity on one rank ---------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Watch(Mitigation):
    """Notes which updates were skipped, and the gradient's norm before the optimizer."""

    name: ClassVar[str] = "watch"
    noted: list[Any]

    def on_gradients(self, step: Step) -> None:
        norm = float(torch.cat([grad_1n[0] for grad_1n in step.gradients]).norm())
        self.noted.append(("gradients", step.index, step.skipped, norm))

    def on_step(self, step: Step) -> None:
        self.noted.append(("step", step.index, step.skipped))


def all_struck() -> dict[str, Any]:
    return {f"{kind}, {clip}": struck(kind, clip) for kind in OPTIMIZERS for clip in (None, 0.5)}


def struck(kind: str, clip: float | None) -> dict[str, Any]:
    """Rank 1 alone receives infinities at steps 0 (before there is any state) and 3."""
    ddp = build()
    optimizer, scaler, scale_at, noted = optimizer_of(kind, ddp), scaler_of(), [], []  # type: ignore[var-annotated]
    with paftbench.attach(ddp, optimizer, scaler, faults=[flip(0, 3)], mitigations=[Watch(noted=noted)]) as attached:
        train(ddp, optimizer, scaler, range(6), clip=clip, scale_at=scale_at)
    counters = {float(state["step"]) for state in optimizer.state.values() if "step" in state}
    return {
        "bits": bits(ddp),
        "scale": scale_at,
        "skipped": [(what, index) for what, index, skipped, *_ in noted if skipped],
        "strikes": attached.strikes.landed,
        "counters": counters,
        "finite": all(bool(p.isfinite().all()) for p in ddp.parameters()),
    }


def test_an_infinity_on_one_rank_skips_the_update_on_all() -> None:
    results = together(all_struck, 2)
    for case, first in results[0].items():
        assert first["strikes"] == 0 and results[1][case]["strikes"] > 0
        for found in (first, results[1][case]):
            assert found["scale"] == [SCALE / 2] * 3 + [SCALE / 4] * 3, case
            assert found["skipped"] == [("gradients", 0), ("step", 0), ("gradients", 3), ("step", 3)]
            assert found["bits"] == first["bits"] and found["finite"], case
            assert found["counters"] <= {4.0}


HOW = {"plain": {}, "clipped": {"clip": 0.5}, "accumulated": {"rounds": 2, "quiet": False}}


def in_step(how: str, overlap: bool) -> dict[str, Any]:
    """Noise parts the replicas, rank 1 is struck at steps that synchronise and at steps that do not."""
    ddp = build()
    optimizer, scaler, scale_at = sgd(ddp), scaler_of(), []  # type: ignore[var-annotated]
    loop: dict[str, Any] = HOW[how]
    with paftbench.attach(
        ddp, optimizer, scaler, faults=[noise(0.5), flip(2, 3, 5, 8)], accumulation=loop.get("rounds", 1),
        mitigations=[
            paftbench.Mitigation("clip_value", limit=1.0),
            paftbench.Mitigation("paft_sync", period=2, overlap=overlap),
        ],
    ) as attached:  # fmt: skip
        train(ddp, optimizer, scaler, range(9), scale_at=scale_at, **loop)
        before = attached.divergence()
        train(ddp, optimizer, scaler, range(9, 10), **loop)
    return {
        "scale": scale_at, "syncs": attached.syncs, "steps": attached.steps, "before": before,
        "after": attached.divergence(), "finite": all(bool(p.isfinite().all()) for p in ddp.parameters()),
    }  # fmt: skip


def all_in_step() -> list[tuple[str, bool, dict[str, Any]]]:
    return [(how, overlap, in_step(how, overlap)) for how in HOW for overlap in (False, True)]


@pytest.mark.parametrize("world_size", [2, 3])
def test_synchronisations_stay_in_step_when_one_rank_is_struck(world_size: int) -> None:
    results = together(all_in_step, world_size)
    halvings = [1, 1, 2, 4, 4, 8, 8, 8, 16]
    for rank in results:
        for (how, overlap, found), (_, _, first) in zip(rank, results[0], strict=True):
            assert found["scale"] == [SCALE / by for by in halvings], (how, overlap)
            assert found["steps"] == 10 and found["syncs"] == 5 and found["finite"]
            # Blocking, the last step averages. Overlapped, step 8 loads the mean of step 7 and is skipped itself.
            assert found["after"] == 0.0 and found["before"] == first["before"] == 0.0, (how, overlap)


def in_memory(scaled: bool) -> dict[str, Any]:
    """Weights and moments of rank 1 are struck after every decision, the first of which is to skip."""
    ddp = build()
    optimizer, scaler = optimizer_of("adam", ddp), scaler_of(enabled=scaled)
    faults = [
        flip(0),
        paftbench.Fault("bit_flip", name="weight", degree=0.01, bits="mantissa", site="parameter", ranks=(1,)),
        paftbench.Fault("bit_flip", name="moment", degree=0.05, bits="mantissa", site="optimizer_state", ranks=(1,)),
    ]
    sync = paftbench.Mitigation("paft_sync", period=4, state="all")
    with paftbench.attach(
        ddp, optimizer, scaler, faults=faults if scaled else faults[1:], mitigations=[sync]
    ) as attached:
        train(ddp, optimizer, scaler, range(3))
        before = attached.divergence()
        train(ddp, optimizer, scaler, range(3, 4))
    rows = [row for row in attached.injections() if row["site"] == "optimizer_state"]
    moments = {(row["step"], row["parameter"].partition(":")[2]) for row in rows}
    return {"before": before, "after": attached.divergence(), "moments": moments, **vars(attached.strikes)}


def memories() -> list[dict[str, Any]]:
    return [in_memory(scaled) for scaled in (True, False)]


@pytest.mark.parametrize("world_size", [2, 3])
def test_strikes_on_memory_come_after_the_decision_and_before_averaging(world_size: int) -> None:
    for rank, (scaled, plain) in enumerate(together(memories, world_size)):
        for found in (scaled, plain):
            assert found["before"] > 0 and found["after"] == 0.0
            assert (found["landed"] > 0) == (rank == 1)
        if rank == 1:  # no moments existed when the first update was skipped
            assert scaled["moments"] == {(step, kind) for step in (1, 2, 3) for kind in ("exp_avg", "exp_avg_sq")}
            assert len(plain["moments"]) == 8


# --- units ---------------------------------------------------------------------------------------------------------


KINDS = ["clip_value", "code local", "paper local", "paper received", "consensus received"]


def in_units(scale: float | None, kind: str) -> Any:
    """The same training with and without a scaler: a power of two changes no bit, unless in what has its own units."""
    ddp = build()
    optimizer, noted = sgd(ddp), []  # type: ignore[var-annotated]
    std = 0.02 * (scale or 1.0)  # what travels is scaled, and so must be what is added to it
    mitigations: list[Any] = [Watch(noted=noted)]
    if kind == "clip_value":
        mitigations += [paftbench.Mitigation("clip_value", limit=0.02), paftbench.Mitigation("paft_sync", period=2)]
    else:
        rule, gradient = kind.split()
        fields = {"rule": rule, "gradient": gradient, "period": 2, "period_min": 1, "period_max": 4}
        mitigations.append(paftbench.Mitigation("paft_dyn", **fields, overlap=gradient == "local"))
    scaler = None if scale is None else scaler_of(scale)
    decisions = []
    with paftbench.attach(ddp, optimizer, scaler, faults=[noise(std)], mitigations=mitigations) as attached:
        for step in range(9):
            train(ddp, optimizer, scaler or GradScaler("cpu", enabled=False), range(step, step + 1))
            decisions.append(attached._hooks.pipeline.measured.decision)
    watched = [entry for entry in noted if entry[0] == "gradients"]
    return bits(ddp), attached._hooks.pipeline.periods, watched, decisions


def all_in_units() -> list[tuple[str, Any, Any]]:
    return [(kind, in_units(2.0**10, kind), in_units(None, kind)) for kind in KINDS]


def test_limits_and_norms_are_in_gradient_units_and_strikes_meet_the_scaled_gradient() -> None:
    for rank in together(all_in_units, 2):
        for kind, scaled, plain in rank:
            assert scaled == plain and len(plain[1]) >= 2, kind


def estimates() -> list[float | None]:
    """sigma-hat where two updates of five are skipped; SGD with momentum, so what is left out matters."""
    torch.manual_seed(0)
    ddp = DistributedDataParallel(nn.Linear(400, 50, bias=False))
    optimizer, scaler = torch.optim.SGD(ddp.parameters(), lr=0.1, momentum=0.9), scaler_of(4.0, backoff_factor=0.999999)
    lost = flip(0, 2, 5, 7, 10, 12, 15, 17, parameters="*", degree=1e-3)
    dyn = paftbench.Mitigation("paft_dyn", rule="consensus", period=5, period_min=5, period_max=5)
    found = []
    with paftbench.attach(ddp, optimizer, scaler, faults=[noise(4.0 * 0.3), lost], mitigations=[dyn]) as attached:
        for step in range(20):
            optimizer.zero_grad()
            scaler.scale(ddp(torch.ones(1, 400)).sum() * 1e-3).backward()
            scaler.step(optimizer)
            scaler.update()
            if (step + 1) % 5 == 0:
                decision = attached._hooks.pipeline.measured.decision
                found.append(None if decision is None else decision.sigma)
    return found


def test_a_skipped_update_adds_nothing_to_the_drift_from_which_the_noise_is_estimated() -> None:
    for found in together(estimates, 3):
        assert found == pytest.approx([0.3] * 4, rel=0.05)


# --- who uses which scaler -----------------------------------------------------------------------------------------


def errors() -> dict[str, str]:
    found = {}
    ddp = build()
    optimizer, scaler = sgd(ddp), scaler_of()

    def unregistered(clip: float | None = None) -> None:
        with paftbench.attach(ddp, optimizer):
            train(ddp, optimizer, scaler, range(3), clip=clip)

    def unused() -> None:
        with paftbench.attach(ddp, optimizer, scaler):
            loss_of(ddp, 0).backward()
            optimizer.step()

    def never(scaler: GradScaler | None = scaler) -> None:
        with paftbench.attach(ddp, optimizer, scaler):
            loss_of(ddp, 0).backward()

    def half() -> None:
        with paftbench.attach(ddp, optimizer, scaler, accumulation=2):
            train(ddp, optimizer, scaler, range(1), clip=1.0)

    for name, loop in {"unregistered": unregistered, "unused": unused, "half": half, "never": never}.items():
        found[name] = refusal(loop)
        scaler = scaler_of()
    found["never, and no scaler"] = refusal(lambda: never(None))
    wrapped = Wrapper(optimizer, scaler)
    found["wrapped"] = refusal(lambda: paftbench.attach(ddp, wrapped))
    found["no scaler"] = refusal(lambda: paftbench.attach(ddp, optimizer, "fp16"))  # type: ignore[arg-type]
    assert not {"step", "unscale_"} & set(vars(scaler))
    return found


def test_a_scaler_that_attach_was_not_given_or_that_is_not_used_is_an_error_on_every_rank() -> None:
    for found in together(errors, 2):
        assert found["unregistered"].startswith(
            "RuntimeError: the optimizer is stepped by a GradScaler that was not given"
        )
        assert found["unused"].startswith(
            "RuntimeError: attached with a GradScaler, but optimizer.step() was called witho"
        )
        assert found["half"].startswith(
            "RuntimeError: accumulation (backward passes per step) is 2, but the optimizer step"
        )
        for case in ("never", "never, and no scaler"):
            assert found[case].startswith(
                "RuntimeError: the attached optimizer was never stepped: 1 backward passes, but"
            )
        assert found["wrapped"].startswith("Refused: the optimizer, a Wrapper, steps through a GradScaler; pass it")
        assert found["no scaler"].startswith("Refused: scaler: a torch.amp.GradScaler, the one that the loop uses, or")


def unscaled_before_backward() -> str:
    """`unscale_` of the last gradients, no `update`, and then other gradients."""
    ddp = build()
    optimizer, scaler = sgd(ddp), scaler_of()
    with paftbench.attach(ddp, optimizer, scaler, faults=[noise(0.1)]) as attached:
        train(ddp, optimizer, scaler, range(1))
        scaler.scale(loss_of(ddp, 1)).backward()
        scaler.unscale_(optimizer)
        optimizer.zero_grad()
        scaler.scale(loss_of(ddp, 2)).backward()
        found = refusal(lambda: scaler.step(optimizer))
        attached.detach()
    return found


def test_gradients_that_would_be_taken_times_the_loss_scale_are_an_error() -> None:
    for found in together(unscaled_before_backward, 2):
        assert found.startswith(
            "RuntimeError: the optimizer took gradients that are still multiplied by the loss scale"
        )


def of_another_scaler() -> tuple[str, bool]:
    """Attached with one scaler and stepped by another."""
    ddp, step = build(), GradScaler.step
    optimizer = sgd(ddp)
    with paftbench.attach(ddp, optimizer, scaler_of()) as attached:
        found = refusal(lambda: train(ddp, optimizer, scaler_of(), range(1)))
        attached.detach()
    return found, GradScaler.step is step


def test_a_scaler_other_than_the_attached_one_is_refused_and_the_class_is_left_as_it_was() -> None:
    for found, left in together(of_another_scaler, 2):
        assert found.startswith("RuntimeError: the optimizer is stepped by a GradScaler that was not given") and left


class Wrapper(torch.optim.Optimizer):
    """An optimizer around another as Accelerate's is: no hooks of its own, the real step called by the scaler."""

    def __init__(self, optimizer: torch.optim.Optimizer, scaler: GradScaler | None = None) -> None:
        self.optimizer = optimizer
        self.scaler = scaler
        self.was_skipped = False

    param_groups = property(lambda self: self.optimizer.param_groups)  # type: ignore[assignment]
    state = property(lambda self: self.optimizer.state)  # type: ignore[assignment]

    def zero_grad(self, set_to_none: bool = True) -> None:
        self.optimizer.zero_grad(set_to_none)

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        if self.scaler is None:
            self.optimizer.step(closure)
            return
        called = []
        original = self.optimizer.step

        def noted(*args: Any, **kwargs: Any) -> Any:
            called.append(True)
            return original(*args, **kwargs)

        self.optimizer.step = noted  # type: ignore[method-assign]
        self.scaler.step(self.optimizer, closure)
        self.scaler.update()
        self.was_skipped = not called
        self.optimizer.step = original  # type: ignore[method-assign]


def wrapped(scaled: bool) -> Any:
    ddp = build()
    scaler = scaler_of() if scaled else None
    optimizer, skipped = Wrapper(sgd(ddp), scaler), []
    faults, mitigations = [noise(0.1), flip(2)], [paftbench.Mitigation("paft_sync", period=5)]
    with paftbench.attach(ddp, optimizer, scaler, faults=faults, mitigations=mitigations) as attached:
        for step in range(5):
            optimizer.zero_grad()
            loss = loss_of(ddp, step)
            (scaler.scale(loss) if scaler else loss).backward()
            optimizer.step()
            skipped.append(optimizer.was_skipped)
    return skipped, attached.steps, attached.syncs, attached.divergence()


def both_wrapped() -> Any:
    return wrapped(True), wrapped(False)


def test_the_optimizer_inside_a_wrapper_is_attached_with_and_without_a_scaler() -> None:
    for scaled, plain in together(both_wrapped, 2):
        assert scaled == ([False, False, True, False, False], 5, 1, 0.0)
        assert plain[:3] == ([False] * 5, 5, 1)


def shared(order: str) -> dict[str, Any]:
    """Two models, their optimizers, one scaler, as a GAN trains; `order` says who detaches first."""
    models = build(), build()
    optimizers, scaler, scale_at = [sgd(model) for model in models], scaler_of(), []
    attached = [
        paftbench.attach(
            model, optimizer, scaler, faults=[flip(*at)], mitigations=[paftbench.Mitigation("paft_sync", period=2)]
        )
        for model, optimizer, at in zip(models, optimizers, [(1,), (3,)], strict=True)
    ]

    def rounds(steps: range) -> None:
        for step in steps:
            for model, optimizer in zip(models, optimizers, strict=True):
                optimizer.zero_grad()
                scaler.scale(loss_of(model, step)).backward()
            for optimizer in optimizers:
                scaler.step(optimizer)
            scaler.update()
            scale_at.append(scaler.get_scale())

    rounds(range(5))
    steps = [each.steps for each in attached]
    first, last = attached if order == "first" else attached[::-1]
    first.detach()
    rounds(range(5, 7))
    assert {"step", "unscale_"} <= set(vars(scaler))
    last.detach()
    assert not {"step", "unscale_"} & set(vars(scaler))
    rounds(range(7, 8))
    return {"steps": steps, "scale": scale_at, "bits": [bits(model) for model in models]}


def both_orders() -> list[dict[str, Any]]:
    return [shared(order) for order in ("first", "last")]


def test_two_attachments_share_a_scaler_and_leave_it_as_it_was() -> None:
    results = together(both_orders, 2)
    for rank in results:
        for found, first in zip(rank, results[0], strict=True):
            assert found["steps"] == [5, 5] and found["bits"] == first["bits"]
            assert found["scale"] == [SCALE] + [SCALE / 2] * 2 + [SCALE / 4] * 5


def one_alone() -> None:
    """Without agreement: what attaching with the scaler is for."""
    ddp = build()
    optimizer, scaler = sgd(ddp), scaler_of()
    for step in range(3):
        optimizer.zero_grad()
        scaler.scale(loss_of(ddp, step)).backward()
        if dist.get_rank() == 1 and step == 1:
            next(ddp.parameters()).grad.fill_(float("inf"))  # type: ignore[union-attr]
        scaler.step(optimizer)
        scaler.update()
    scales = [torch.zeros(1) for _ in range(2)]
    dist.all_gather(scales, torch.tensor([scaler.get_scale()]))
    assert scales[0] == scales[1], f"scales {[float(scale) for scale in scales]}"


def test_without_agreement_loss_scales_part() -> None:
    for outcome in attempt(one_alone, 2):
        assert outcome[0] == "raised" and f"scales [{SCALE}, {SCALE / 2}]" in outcome[1]
