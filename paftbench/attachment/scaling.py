"""torch's `GradScaler` under attachments: the only file that touches its private parts.

A scaler decides from this rank's gradients alone whether the update is skipped. Where ranks received different
gradients that decision, and the loss scale after it, would part them: here all ranks skip when any of them must.
"""

import sys
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.amp.grad_scaler import GradScaler, OptState

from paftbench.errors import Refused
from paftbench.ranks.axis import Ranks

MODULE = GradScaler.__module__
FRAMES = 24  # between a step hook and the scaler that called step(): wrappers of schedulers, frameworks, the profiler
TAPPED = ("unscale_", "step")


class Decided(Protocol):
    """What hears of the scaler's decisions."""

    def unscaling(self) -> None:
        """Gradients are about to be unscaled; may refuse by raising."""
        ...

    def unscaled(self, skipping: bool) -> None:
        """Gradients are in their own units, and all ranks agree on whether the update will be skipped."""
        ...

    def stepped(self, skipped: bool) -> None:
        """`scaler.step` is over: the parameters were updated, or not, on all ranks alike."""
        ...


class Scaling:
    """A scaler's decisions for one optimizer, agreed on by `ranks` and told to `receiver`, until `release`."""

    def __init__(self, scaler: GradScaler, optimizer: torch.optim.Optimizer, ranks: Ranks, receiver: Decided) -> None:
        self.optimizer = optimizer
        self.ranks = ranks
        self.receiver = receiver
        self.skipping = False
        self.stepping = False  # whether `scaler.step` is under way
        self._scaler = scaler
        self._tap = _TAPS.setdefault(id(scaler), _Tap(scaler))
        self._tap.open(self)

    @property
    def scale(self) -> float:
        """What the loss, and so every gradient before unscaling, is multiplied by."""
        return float(self._scaler.get_scale())

    def release(self) -> None:
        """Leave the scaler as it was found, once nobody else is attached to it."""
        self._tap.close(self)


class _Tap:
    """A scaler's own `unscale_` and `step`, replaced on the instance while anybody is attached to it."""

    def __init__(self, scaler: GradScaler) -> None:
        self._scaler = scaler
        self._scalings: list[Scaling] = []
        # What somebody else put on the instance is called, and comes back.
        self._found = {name: scaler.__dict__[name] for name in TAPPED if name in scaler.__dict__}
        self._original_unscale, self._original_step = scaler.unscale_, scaler.step

    def open(self, scaling: Scaling) -> None:
        self._scalings.append(scaling)
        self._scaler.__dict__.update(unscale_=self._unscale, step=self._step)

    def close(self, scaling: Scaling) -> None:
        self._scalings.remove(scaling)
        if not self._scalings:
            for name in TAPPED:
                del self._scaler.__dict__[name]
            self._scaler.__dict__.update(self._found)
            del _TAPS[id(self._scaler)]

    def _unscale(self, optimizer: torch.optim.Optimizer) -> None:
        """`scaler.unscale_`, then agreement on whether anybody found an infinity or NaN."""
        scalings = self._of(optimizer)
        for scaling in scalings:
            scaling.receiver.unscaling()
        self._original_unscale(optimizer)
        found: dict[torch.device, Tensor] = self._state(optimizer)["found_inf_per_device"]
        for scaling in scalings:
            scaling.skipping = scaling.ranks.any([any(bool(flag) for flag in found.values())])
            if scaling.skipping:
                for flag in found.values():
                    flag.fill_(1.0)
            scaling.receiver.unscaled(scaling.skipping)

    def _step(self, optimizer: torch.optim.Optimizer, *args: Any, **kwargs: Any) -> Any:
        """`scaler.step`. Optimizers that would unscale gradients on their own (`fused`) get unscaled ones too.

        Nor do they hear of an update that is skipped: fused SGD would keep a momentum that it never wrote.
        """
        scalings = self._of(optimizer)
        if scalings and self._state(optimizer)["stage"] is OptState.READY:
            self._scaler.unscale_(optimizer)
        if self._state(optimizer)["stage"] is OptState.UNSCALED and any(scaling.skipping for scaling in scalings):
            self._state(optimizer)["stage"] = OptState.STEPPED
            result = None
        else:
            result = self._stepped(scalings, optimizer, *args, **kwargs)
        for scaling in scalings:
            scaling.receiver.stepped(scaling.skipping)
        return result

    def _stepped(self, scalings: list[Scaling], optimizer: torch.optim.Optimizer, *args: Any, **kwargs: Any) -> Any:
        for scaling in scalings:
            scaling.stepping = True
        try:
            return self._original_step(optimizer, *args, **kwargs)
        finally:
            for scaling in scalings:
                scaling.stepping = False

    def _of(self, optimizer: torch.optim.Optimizer) -> list[Scaling]:
        return [scaling for scaling in self._scalings if scaling.optimizer is optimizer]

    def _state(self, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
        return self._scaler._per_optimizer_states[id(optimizer)]


_TAPS: dict[int, _Tap] = {}


def enabled(scaler: object) -> GradScaler | None:
    """The scaler, or None for one that is disabled and so does nothing; `ValueError` for what is none."""
    if scaler is None:
        return None
    if not isinstance(scaler, GradScaler):
        raise Refused(f"scaler: a torch.amp.GradScaler, the one that the loop uses, or None, got {scaler!r}")
    return scaler if scaler.is_enabled() else None


def calling_scaler() -> GradScaler | None:
    """The enabled scaler whose `step` led here; None where the optimizer was stepped without one."""
    frame = sys._getframe()
    for _ in range(FRAMES):
        if frame.f_back is None:
            return None
        frame = frame.f_back
        if frame.f_globals.get("__name__") == MODULE:
            scaler = frame.f_locals.get("self")
            if isinstance(scaler, GradScaler) and scaler.is_enabled():
                return scaler
    return None
