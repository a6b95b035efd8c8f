"""What lets a training survive loud failures: checkpoints, recovery from odd steps, elastic data, a structured log."""

from paftbench.resilience.anomaly import Robust, SkipStep, ZClip
from paftbench.resilience.checkpoints import Checkpoints
from paftbench.resilience.run import ResilientRun as Run
from paftbench.resilience.rungs import Recovery
from paftbench.resilience.sampler import StreamSampler

__all__ = ["Checkpoints", "Recovery", "Robust", "Run", "SkipStep", "StreamSampler", "ZClip"]
