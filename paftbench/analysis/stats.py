"""What may be said of a few runs. The run is the sample, seeds are paired.

Fewer than 3 seeds: numbers, no claim. 3 or 4: every point and the range. 5 and more: Student's t interval of the mean
over seeds, which is the paired one where the values are differences or ratios within a seed.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cache
from math import inf, isfinite, sqrt
from statistics import NormalDist, mean, stdev
from typing import Final, Literal

from paftbench.errors import Refused

ClaimKind = Literal["none", "range", "interval"]
NO_CLAIM: Final = "shown, no claim"
INTERVAL: Final = "95 % paired t"
CONFIDENCE: Final = 0.95
POWER: Final = 0.8


@dataclass(frozen=True, kw_only=True)
class Summary:
    """The mean over seeds, and from how many: `low` and `high` are None, the range, or the interval by `claim`."""

    mean: float | None
    low: float | None
    high: float | None
    points: tuple[float, ...]
    claim: ClaimKind

    @property
    def bounds(self) -> list[float] | None:
        return None if self.low is None or self.high is None else [self.low, self.high]


def claim_of(seeds: int) -> ClaimKind:
    """What a number of distinct seeds allows."""
    return "none" if seeds < 3 else "range" if seeds < 5 else "interval"


def summarise(seeds: Sequence[Hashable], values: Sequence[float | None]) -> Summary:
    """Mean and spread of one value per run; `seeds[i]` is the seed of `values[i]`, None was not measured.

    Several runs of a seed count once, as their mean. A value that is not finite makes the mean so, without a spread: it
    is not left out.
    """
    groups: dict[Hashable, list[float]] = {}
    for seed, value in zip(seeds, values, strict=True):
        if value is not None:
            groups.setdefault(seed, []).append(value)
    points = tuple(value for value in values if value is not None)
    by_seed = [mean_of(group) for group in groups.values()]
    claim = claim_of(sum(all(map(isfinite, group)) for group in groups.values()))
    known = [value for value in by_seed if value is not None]
    low, high = None, None
    if all(map(isfinite, points)):
        if claim == "range":
            low, high = min(points), max(points)
        elif claim == "interval":
            low, high = t_interval(known)
    return Summary(mean=mean_of(known), low=low, high=high, points=points, claim=claim)


def mean_of(values: Sequence[float | None]) -> float | None:
    """The mean of what was measured, exactly rounded; NaN where one of them is."""
    points = [value for value in values if value is not None]
    return float(mean(points)) if points else None


def t_interval(values: Sequence[float], confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Interval of the mean of independent values (Student 1908); without width where all are equal.

    Paired when the values are: pass differences or ratios within a seed. `ValueError` for fewer than two.
    """
    centre, error = float(mean(values)), standard_error(values)
    half = t_quantile((1 + confidence) / 2, len(values) - 1) * error
    return centre - half, centre + half


def detectable(differences: Sequence[float]) -> float | None:
    """The smallest true mean difference that as many pairs of the same spread would show, four times in five.

    By the paired t test, two-sided at 5 %, with power 80 %; 0 where all differences are equal, None for fewer than 3.
    """
    if len(differences) < 3 or not all(map(isfinite, differences)):
        return None
    return _noncentrality(len(differences) - 1) * standard_error(differences)


def standard_error(values: Sequence[float]) -> float:
    """Of the mean of independent values; infinite where their squares are."""
    try:
        return stdev(values) / sqrt(len(values))
    except OverflowError:
        return inf


@cache
def t_quantile(probability: float, freedom: int) -> float:
    """Student's t with so many degrees of freedom."""
    # Here, not above: most commands need none, and scipy.stats would take twice as long.
    from scipy.special import stdtrit

    return float(stdtrit(freedom, probability))


@cache
def _noncentrality(freedom: int) -> float:
    """How many standard errors a mean must lie from zero for the test to find it with `POWER`."""
    from scipy.special import nctdtrinc

    return float(nctdtrinc(freedom, 1 - POWER, t_quantile((1 + CONFIDENCE) / 2, freedom)))


def wilson(hits: int, trials: int, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Wilson score interval of a rate (Wilson 1927); (0, 1) without trials."""
    if not 0 <= hits <= trials:
        raise Refused(f"hits must be within [0, trials], got {hits} of {trials}")
    if trials == 0:
        return 0.0, 1.0
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    rate, spread = hits / trials, z**2 / trials
    centre = rate + spread / 2
    half = z * sqrt(rate * (1 - rate) / trials + spread / (4 * trials))
    return max(0.0, (centre - half) / (1 + spread)), min(1.0, (centre + half) / (1 + spread))
