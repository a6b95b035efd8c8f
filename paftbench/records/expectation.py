"""What an experiment may expect of its cells: the values by name, and bounds on them. Importable without torch."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from paftbench.errors import Missing, Refused
from paftbench.records.kinds import Label
from paftbench.records.outcome import OUTCOMES
from paftbench.suggest import did_you_mean

OUTCOME: Final = "outcome"
DEGRADED: Final = "degraded"  # the outcome that compares with golden
BOUNDS: Final = ("at_least", "at_most", "never")


@dataclass(frozen=True, kw_only=True)
class Measure:
    """A value that `check` can hold: its unit, and what it says of one run.

    `golden`: it compares with the golden run of the same seed; `quality`: a run that broke down fails it, and counts in
    its mean as chance.
    """

    unit: str
    meaning: str
    golden: bool = False
    quality: bool = False


MEASURES: Final[Mapping[str, Measure]] = {
    OUTCOME: Measure(unit="share of runs", meaning="how often one of the outcomes in `never` occurred"),
    "quality_lost": Measure(
        unit="the metric's", golden=True, quality=True,
        meaning="how much worse than the golden run of the same seed, by the judge; negative is better",
    ),
    "mean_model": Measure(unit="the metric's", quality=True, meaning="the metric of the mean of all ranks' models"),
    "worst_rank": Measure(unit="the metric's", quality=True, meaning="the metric of the worst rank's model"),
    "rank0": Measure(unit="the metric's", quality=True, meaning="the metric of rank 0's model"),
    "gap_closed": Measure(
        unit="share", golden=True, quality=True,
        meaning="(m - ddp) / (golden - ddp) of the same seed and faults, by the judge: 1 is golden, 0 is plain DDP",
    ),
    "divergence": Measure(unit="L2 norm of weights", meaning="RMS distance of ranks to their mean after the last step"),
    "divergence_max": Measure(unit="L2 norm of weights", meaning="the largest such distance of the run"),
    "bitwise_identical": Measure(
        unit="0 or 1", golden=True, meaning="whether every rank's weights equal the golden run's in every bit"
    ),
    "extra_bytes": Measure(
        unit="bytes per gradient byte", meaning="what mitigations put into collectives, over what the gradients put in"
    ),
    "overhead": Measure(
        unit="ratio", meaning="step time over plain DDP's in the same run; torchrun only, and never from `exact`"
    ),
    "strikes": Measure(unit="count", meaning="strikes drawn in the run, over all ranks"),
    "nsr": Measure(unit="ratio", meaning="noise-to-signal ratio of the median step"),
    "nsr_max": Measure(unit="ratio", meaning="noise-to-signal ratio of the worst step"),
    "syncs": Measure(unit="count", meaning="synchronisations of the run"),
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Expectation:
    """What `check` holds: a value of the cells that `where` selects, and its bound.

    A list in `where` means any of its labels. `ValueError` or `LookupError` for a value that there is not, or a bound
    that does not fit it.
    """

    where: Mapping[str, Label | tuple[Label, ...]]
    value: str
    at_least: float | None = None
    at_most: float | None = None
    never: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.value not in MEASURES:
            raise Missing(f"no value {self.value!r}{did_you_mean(self.value, MEASURES)}")
        if self.at_least is None and self.at_most is None and not self.never:
            raise Refused(f"a bound is missing, one of {', '.join(BOUNDS)}")
        if self.value == OUTCOME and (not self.never or self.at_least is not None or self.at_most is not None):
            raise Refused("the value outcome takes one bound, `never` with a list of outcomes")
        if self.value != OUTCOME and self.never:
            raise Refused(f"never is a bound of the value outcome; {self.value} takes at_least and at_most")
        for key, labels in self.where.items():
            if labels == ():
                raise Refused(f"where: {key} lists no label")
        for outcome in self.never:
            if outcome not in OUTCOMES:
                raise Missing(f"never: no outcome {outcome!r}{did_you_mean(outcome, OUTCOMES)}")
        if self.at_least is not None and self.at_most is not None and self.at_least > self.at_most:
            raise Refused(f"at_least {self.at_least:g} is above at_most {self.at_most:g}: no number holds both")

    @property
    def measure(self) -> Measure:
        return MEASURES[self.value]
