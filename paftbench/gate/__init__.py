"""The convergence gate: does training survive its faults as the experiment, or a baseline, says."""

from paftbench.gate.finding import EXIT, Finding, verdict_of
from paftbench.gate.judging import judged, sweep_of

__all__ = ["EXIT", "Finding", "judged", "sweep_of", "verdict_of"]
