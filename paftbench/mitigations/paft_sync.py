"""PAFT-Sync: periodic averaging of the replicas' parameters."""

from dataclasses import dataclass

from torch import Tensor

from paftbench.errors import Refused
from paftbench.mitigations.averaging import Averaging
from paftbench.mitigations.step import Step


@dataclass(frozen=True, kw_only=True)
class PaftSync(Averaging):
    """After the update of every `period`-th step, replace the parameters of all ranks by their mean.

    Source: "Capturing and Mitigating Gradient Aggregation Errors for Fault-Tolerant Distributed Training" (ICLR 2025
    submission 10612), Algorithm 1; with `overlap` its Algorithm 2 at a fixed period. `state` `params` is the paper's
    default.
    """

    name = "paft_sync"
    period: int = 10

    def __post_init__(self) -> None:
        if self.period < 1:
            raise Refused(f"period (steps from one synchronisation to the next) must be >= 1, got {self.period}")

    @property
    def steps_per_sync(self) -> float:
        return self.period

    def due(self, step: Step) -> bool:
        return (step.index + 1) % self.period == 0

    def receive(self, step: Step, means: list[Tensor]) -> None:
        super().receive(step, means)
        step.period = self.period
