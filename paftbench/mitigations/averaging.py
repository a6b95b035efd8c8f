"""Averaging of replicas, blocking or overlapped: what PAFT-Sync and PAFT-Dyn share. L = ranks hosted here."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from torch import Tensor

from paftbench.mitigations.contract import Mitigation
from paftbench.mitigations.step import Step
from paftbench.ranks.axis import Pending, Ranks
from paftbench.ranks.layout import Layout


@dataclass(frozen=True, kw_only=True)
class Averaging(Mitigation):
    """After the update of the steps that are `due`, replace the parameters of all ranks by their mean.

    With `overlap` the mean starts after step t's update and is loaded in step t+1 after its gradients have been
    aggregated, before its update: one step stale, for the memory of what is averaged and of its mean.
    `state`: `params`, `all` (also momentum or Adam's moments; step counters untouched), `reset` (moments become zero at
    a sync). `buffers`: BatchNorm's running statistics travel with the parameters.
    """

    overlap: bool = False
    state: Literal["params", "all", "reset"] = "params"
    buffers: bool = True

    def due(self, step: Step) -> bool:
        """Whether replicas are averaged after this step's update; every rank must give the same answer."""
        raise TypeError(f"{type(self).__name__} does not say which steps are due")

    def arrived(self, step: Step, means: Sequence[Tensor]) -> None:
        """Look at the parameters' means, [1, n] per block, while the replicas still differ from them."""

    def init(self, layout: Layout, ranks: Ranks) -> dict[str, Any]:
        return {"pending": None}

    @property
    def copies_pending(self) -> int:
        return int(self.overlap)

    def memory_bytes(self, layout: Layout) -> int:
        """With `overlap`, a copy of the parameters and their mean; moments and buffers, if averaged, come on top."""
        parameters = sum((slot.stop - slot.start) * slot.dtype.itemsize for slot in layout.slots)
        return 2 * parameters if self.overlap else 0

    def on_gradients(self, step: Step) -> None:
        if step.state["pending"] is not None:
            means = step.state["pending"].wait()
            self.arrived(step, means[: len(step.parameters)])
            self.flush(step)

    def on_step(self, step: Step) -> None:
        if not self.due(step):
            return
        if self.overlap:
            step.state["pending"] = step.ranks.start_consensus(self._averaged(step))
        else:
            means = step.ranks.consensus(self._averaged(step))
            self.arrived(step, means[: len(step.parameters)])
            self.receive(step, means)

    def flush(self, step: Step) -> None:
        pending = step.state["pending"]
        if pending is not None:
            step.state["pending"] = None
            self.receive(step, pending.wait())

    def pending(self, state: dict[str, Any]) -> dict[str, Any]:
        pending: Pending | None = state["pending"]
        return {**state, "pending": None if pending is None else pending.wait()}

    def resume(self, state: dict[str, Any]) -> dict[str, Any]:
        means: list[Tensor] | None = state["pending"]
        return {**state, "pending": None if means is None else Pending(lambda: means)}

    def _averaged(self, step: Step) -> list[Tensor]:
        blocks = list(step.parameters)
        if self.state == "all":
            blocks += step.moments
        if self.buffers:
            blocks += step.replicas.buffers()
        return blocks

    def receive(self, step: Step, means: list[Tensor]) -> None:
        """Put means in the place of what was averaged; a subclass notes besides what its synchronisation was."""
        live = list(step.parameters)
        if self.state == "all":
            live += step.moments
        for block_Ln, mean_1n in zip(live, means[: len(live)], strict=True):
            block_Ln.copy_(mean_1n)
        if self.buffers:
            step.replicas.load_buffers(means[len(live) :])
        if self.state == "reset":
            for moment_Ln in step.moments:
                moment_Ln.zero_()
        step.synced = True
