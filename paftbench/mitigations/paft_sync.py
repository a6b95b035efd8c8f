"""PAFT-Sync: periodic averaging of the replicas' parameters."""

from dataclasses import dataclass
from typing import Any, Literal

from torch import Tensor

from paftbench.layout import Layout
from paftbench.mitigations.contract import Mitigation
from paftbench.mitigations.step import Step
from paftbench.ranks import Pending, Ranks


@dataclass(frozen=True, kw_only=True)
class PaftSync(Mitigation):
    """After the update of every `period`-th step, replace the parameters of all ranks by their mean.

    Source: "Capturing and Mitigating Gradient Aggregation Errors for Fault-Tolerant Distributed Training" (ICLR 2025
    submission 10612), Algorithm 1. With `overlap` (Algorithm 2) the mean starts after step t's update and is loaded in
    step t+1 after its gradients have been aggregated, before its update: one step stale, for the memory of what is
    averaged and of its mean.
    `state`: `params` (the paper's default), `all` (also momentum or Adam's moments; step counters untouched), `reset`
    (moments become zero at a sync). `buffers`: BatchNorm's running statistics travel with the parameters.
    """

    name = "paft_sync"
    period: int = 10
    overlap: bool = False
    state: Literal["params", "all", "reset"] = "params"
    buffers: bool = True

    def __post_init__(self) -> None:
        if self.period < 1:
            raise ValueError(f"period (steps from one synchronisation to the next) must be >= 1, got {self.period}")

    def init(self, layout: Layout, ranks: Ranks) -> dict[str, Any]:
        return {"pending": None}

    def memory_bytes(self, layout: Layout) -> int:
        """With `overlap`, a copy of the parameters and their mean; moments and buffers, if averaged, come on top."""
        parameters = sum((slot.stop - slot.start) * slot.dtype.itemsize for slot in layout.slots)
        return 2 * parameters if self.overlap else 0

    def on_gradients(self, step: Step) -> None:
        self.flush(step)

    def on_step(self, step: Step) -> None:
        if (step.index + 1) % self.period:
            return
        if self.overlap:
            step.state["pending"] = step.ranks.start_consensus(self._averaged(step))
        else:
            self._load(step, step.ranks.consensus(self._averaged(step)))

    def flush(self, step: Step) -> None:
        pending = step.state["pending"]
        if pending is not None:
            step.state["pending"] = None
            self._load(step, pending.wait())

    def pending(self, state: dict[str, Any]) -> dict[str, Any]:
        pending: Pending | None = state["pending"]
        return {"pending": None if pending is None else pending.wait()}

    def resume(self, state: dict[str, Any]) -> dict[str, Any]:
        means: list[Tensor] | None = state["pending"]
        return {"pending": None if means is None else Pending(lambda: means)}

    def _averaged(self, step: Step) -> list[Tensor]:
        blocks = list(step.parameters)
        if self.state == "all":
            blocks += step.moments
        if self.buffers:
            blocks += step.replicas.buffers()
        return blocks

    def _load(self, step: Step, means: list[Tensor]) -> None:
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
        step.period = self.period
