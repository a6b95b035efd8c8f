"""The averaging limit: what perfect averaging of gradients would reach."""

from dataclasses import dataclass

from paftbench.mitigations.contract import Mitigation
from paftbench.mitigations.step import Step


@dataclass(frozen=True, kw_only=True)
class Regather(Mitigation):
    """Average the received gradients once more at every step, free of faults, before the optimizer.

    Replicas then stay equal and independent noise of standard deviation s is down to s / sqrt(W), which no averaging
    can improve on; voting and repair may.
    """

    name = "regather"

    def on_gradients(self, step: Step) -> None:
        blocks = step.gradients
        for grad_Ln, mean_1n in zip(blocks, step.ranks.consensus(blocks), strict=True):
            grad_Ln.copy_(mean_1n)
