"""What became of a trial that ran to its end. Crashed, hung and error belong to whoever sees the process end."""

from dataclasses import dataclass
from math import isnan
from typing import Literal

FAILED = ("error", "crashed", "hung")  # outcomes of a process that wrote no result of its own
BROKE_DOWN = ("crashed", "hung", "nonfinite")  # under its faults
BROKEN = ("error", *BROKE_DOWN)
OUTCOMES = (*BROKEN, "failed_to_learn", "degraded", "masked")


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What a finished trial knows about itself.

    `judged` is the judge's metric, `golden` that of the golden run of the same seed (`None` without one), `untrained`
    that of the model before its first step; `nonfinite` says that the last loss or a parameter of any rank is not
    finite; `tolerance` is in the metric's own unit.
    """

    nonfinite: bool
    judged: float
    golden: float | None
    chance: float
    untrained: float
    direction: Literal["max", "min"]
    tolerance: float

    def better(self, value: float, than: float) -> bool:
        return value > than if self.direction == "max" else value < than


def outcome_of(facts: Facts) -> str:
    """The first that holds of nonfinite, failed_to_learn, degraded, masked."""
    if facts.nonfinite or isnan(facts.judged):
        return "nonfinite"
    if not (facts.better(facts.judged, facts.chance) and facts.better(facts.judged, facts.untrained)):
        return "failed_to_learn"
    if facts.golden is not None and _loss_of_quality(facts, facts.golden) > facts.tolerance:
        return "degraded"
    return "masked"


def _loss_of_quality(facts: Facts, golden: float) -> float:
    return golden - facts.judged if facts.direction == "max" else facts.judged - golden
