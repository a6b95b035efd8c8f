"""Faults and mitigations on a user's own DDP model and optimizer, without a change to the training loop."""

import copy
from collections.abc import Sequence
from types import TracebackType
from typing import Any

import torch
from torch import nn
from torch.amp.grad_scaler import GradScaler

from paftbench.attachment.checks import Wanted
from paftbench.attachment.hooks import Hooks, hook_up
from paftbench.attachment.rounds import Event
from paftbench.errors import Refused
from paftbench.faults.fault import Fault
from paftbench.faults.injector import Strikes
from paftbench.faults.log import Row
from paftbench.mitigations.contract import Mitigation
from paftbench.step.metrics import spread


class Attachment:
    """What a user holds: strikes, steps and divergence to read, state to save, `detach`.

    A step is one completed aggregation and the optimizer's decision after it. With `accumulation=k`, k synchronised
    backward passes make one step, and faults strike its last. With a `scaler`, mitigations see gradients once they are
    unscaled, and a step is over when `scaler.step` is. Every rank of the model's group must attach, with the same
    arguments.
    """

    def __init__(self, hooks: Hooks) -> None:
        self._hooks = hooks
        self._pipeline = hooks.pipeline

    @property
    def strikes(self) -> Strikes:
        """Strikes on this rank so far."""
        return self._pipeline.injector.counts

    @property
    def steps(self) -> int:
        """Completed steps."""
        return self._pipeline.step

    @property
    def syncs(self) -> int:
        """Synchronisations of the replicas so far."""
        return self._pipeline.syncs

    def injections(self) -> list[Row]:
        """A row for every strike on this rank since the last call, as in `injections.jsonl`."""
        return self._pipeline.injector.drain(decided=True)

    def divergence(self) -> float:
        """RMS over ranks of the distance to the mean parameters; every rank must call it."""
        return spread(self._pipeline.replicas.parameters, self._pipeline.replicas.ranks)

    def state_dict(self) -> dict[str, Any]:
        """This rank's part of a checkpoint taken between two steps: what is pending, counts, what faults remember.

        No rank waits for another. Tensors, numbers, strings, lists and dicts only, so it loads with `weights_only`.
        """
        rounds = self._hooks.rounds.state_dict()
        return copy.deepcopy({"plugins": self._plugins(), **rounds, "pipeline": self._pipeline.state_dict()})

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """Continue from `state_dict()`; model, optimizer, scaler and schedule are the user's to restore, on each rank.

        `ValueError` where the attachment was made with other faults or mitigations.
        """
        if saved["plugins"] != self._plugins():
            raise Refused(f"the state is of {saved['plugins']}, but attached are {self._plugins()}")
        self._hooks.rounds.load_state_dict(saved)
        self._pipeline.load_state_dict(copy.deepcopy(saved["pipeline"]))

    def detach(self) -> None:
        """Apply what mitigations hold back and leave plain DDP, bit for bit. Every rank must call it."""
        self._hooks.detach()

    def __enter__(self) -> "Attachment":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None and self._hooks.plugged:
                self._hooks.tell(Event.END)
                self._hooks.detach()
        finally:
            self._hooks.unplug()

    def _plugins(self) -> list[str]:
        faults = [f"fault {cover.fault.name}" for cover in self._pipeline.injector.covers]
        return faults + [f"mitigation {mitigation.name}" for mitigation in self._pipeline.mitigations]


def attach(
    ddp: nn.Module,
    optimizer: torch.optim.Optimizer,
    scaler: GradScaler | None = None,
    *,
    faults: Sequence[Fault] = (),
    mitigations: Sequence[Mitigation] = (),
    seed: int = 0,
    accumulation: int = 1,
    exact: bool = False,
) -> Attachment:
    """Put faults and mitigations between a DDP model and its optimizer; use it as a context manager or `detach()`.

    `ddp` may be compiled, `optimizer` wrapped as Accelerate does; a loop that scales its loss passes its `scaler`.
    `ValueError` for a model that is not DDP, has a hook or is attached, and for an optimizer that does not hold its
    parameters or whose updates are no steps. Where the next forward pass with gradients begins before the optimizer
    has stepped, the gradients are discarded: they make no step.
    """
    wanted = Wanted(faults=faults, mitigations=mitigations, seed=seed, accumulation=accumulation, exact=exact)
    return Attachment(hook_up(ddp, optimizer, scaler, wanted))
