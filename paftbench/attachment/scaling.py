"""torch's `GradScaler` under attachments: the only file that touches its private parts.

A scaler decides from this rank's gradients alone whether the update is skipped. Where ranks received different
gradients that decision, and the loss scale after it, would part them: here all ranks skip when any of them must.
"""

import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.amp.grad_scaler import GradScaler, OptState

from paftbench.attachment.rounds import Event
from paftbench.errors import Refused
from paftbench.ranks.axis import Ranks

TAPPED = ("unscale_", "step")


class Scaling:
    """A scaler's decisions for one optimizer, agreed on by `ranks` and told to `tell`, until `release`."""

    def __init__(
        self, scaler: GradScaler, optimizer: torch.optim.Optimizer, ranks: Ranks, tell: Callable[[Event], None]
    ) -> None:
        self.optimizer = optimizer
        self.ranks = ranks
        self.tell = tell
        self.skipping = False
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
            scaling.tell(Event.UNSCALE)
        self._original_unscale(optimizer)
        found: dict[torch.device, Tensor] = self._state(optimizer)["found_inf_per_device"]
        for scaling in scalings:
            scaling.skipping = scaling.ranks.any([any(bool(flag) for flag in found.values())])
            if scaling.skipping:
                for flag in found.values():
                    flag.fill_(1.0)
            scaling.tell(Event.OVERFLOWED if scaling.skipping else Event.UNSCALED)

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
            with STEPPING.by(self._scaler):
                result = self._original_step(optimizer, *args, **kwargs)
        for scaling in scalings:
            scaling.tell(Event.SKIPPED if scaling.skipping else Event.UPDATED)
        return result

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


class _Here(threading.local):
    """What this thread is in."""

    scaler: GradScaler | None = None


class _Stepping:
    """Which scaler is stepping an optimizer.

    A scaler that was not passed in leaves no trace on the optimizer that it steps, so `GradScaler.step` is replaced on
    the class while anybody is attached.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()  # ranks may be threads
        self._watching = 0
        self._here = _Here()

    @property
    def scaler(self) -> GradScaler | None:
        """The enabled scaler whose `step` led here, in this thread."""
        return self._here.scaler

    @contextmanager
    def by(self, scaler: GradScaler) -> Iterator[None]:
        """While a scaler steps an optimizer."""
        outer, self._here.scaler = self.scaler, scaler if scaler.is_enabled() else None
        try:
            yield
        finally:
            self._here.scaler = outer

    def watch(self) -> None:
        with self._lock:
            self._watching += 1
            if self._watching == 1:
                self._found, self._ours = GradScaler.step, self._noting(GradScaler.step)
                GradScaler.step = self._ours  # type: ignore[method-assign]

    def unwatch(self) -> None:
        with self._lock:
            self._watching -= 1
            if self._watching == 0 and GradScaler.step is self._ours:  # else somebody replaced it since, and calls it
                GradScaler.step = self._found  # type: ignore[method-assign]

    def _noting(self, step: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(step)
        def noted(scaler: GradScaler, *args: Any, **kwargs: Any) -> Any:
            with self.by(scaler):
                return step(scaler, *args, **kwargs)

        return noted


STEPPING = _Stepping()
