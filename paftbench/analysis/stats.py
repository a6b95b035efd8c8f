"""What may be said of a few runs. The run is the sample, seeds are paired.

Fewer than 3 seeds: numbers, no claim. 3 or 4: every point and the range. 5 and more: a paired bootstrap interval.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from math import isfinite, sqrt
from statistics import NormalDist
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Claim = Literal["none", "range", "interval"]
NO_CLAIM = "shown, no claim"


@dataclass(frozen=True, kw_only=True)
class Summary:
    """The mean over runs, and from how many seeds: `low` and `high` are None, the range, or the interval by `claim`."""

    mean: float | None
    low: float | None
    high: float | None
    points: tuple[float, ...]
    claim: Claim


def claim_of(seeds: int) -> Claim:
    """What a number of distinct seeds allows."""
    return "none" if seeds < 3 else "range" if seeds < 5 else "interval"


def summarise(seeds: Sequence[Any], values: Sequence[float | None], confidence: float = 0.95) -> Summary:
    """Mean and spread of one value per run; `seeds[i]` is the seed of `values[i]`, None was not measured.

    A NaN among the values makes the mean NaN (a run that broke is not left out); range and interval are of the finite.
    """
    measured = [(seed, value) for seed, value in zip(seeds, values, strict=True) if value is not None]
    points = tuple(value for _, value in measured)
    finite = [(seed, value) for seed, value in measured if isfinite(value)]
    claim = claim_of(len({seed for seed, _ in finite}))
    low, high = None, None
    if claim == "range":
        low, high = min(value for _, value in finite), max(value for _, value in finite)
    elif claim == "interval":
        low, high = bootstrap([seed for seed, _ in finite], [value for _, value in finite], confidence)
    return Summary(mean=mean_of(values), low=low, high=high, points=points, claim=claim)


def mean_of(values: Sequence[float | None]) -> float | None:
    """The mean of what was measured; NaN where one of them is."""
    points = [value for value in values if value is not None]
    return sum(points) / len(points) if points else None


def bootstrap(
    seeds: Sequence[Any], values: Sequence[float], confidence: float = 0.95, resamples: int = 4000
) -> tuple[float, float]:
    """Percentile interval of the mean, seeds drawn with replacement, all runs of a seed together.

    Paired when the values are: pass differences or ratios within a seed. Seeded: the same runs give the same interval.
    """
    groups = [[value for own, value in zip(seeds, values, strict=True) if own == seed] for seed in sorted(set(seeds))]
    sums = np.array([sum(group) for group in groups])
    sizes = np.array([len(group) for group in groups])
    drawn = _resampled(len(groups), resamples)
    means = sums[drawn].sum(axis=1) / sizes[drawn].sum(axis=1)
    low, high = np.quantile(means, [(1 - confidence) / 2, (1 + confidence) / 2])
    return float(low), float(high)


@cache
def _resampled(groups: int, resamples: int) -> NDArray[np.int64]:
    """Which groups each resample draws, [resamples, groups]."""
    return np.random.default_rng(0).integers(groups, size=(resamples, groups))


def wilson(hits: int, trials: int, confidence: float = 0.95) -> tuple[float, float]:
    """Wilson score interval of a rate (Wilson 1927); (0, 1) without trials."""
    if not 0 <= hits <= trials:
        raise ValueError(f"hits must be within [0, trials], got {hits} of {trials}")
    if trials == 0:
        return 0.0, 1.0
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    rate, spread = hits / trials, z**2 / trials
    centre = rate + spread / 2
    half = z * sqrt(rate * (1 - rate) / trials + spread / (4 * trials))
    return max(0.0, (centre - half) / (1 + spread)), min(1.0, (centre + half) / (1 + spread))
