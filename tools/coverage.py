"""How often an interval that says 95 % holds the true mean: `python tools/coverage.py`, seconds.

Draws many sweeps of n seeds from populations whose mean is known, and counts the intervals that hold it: those of
`paftbench.analysis.stats`, and for comparison the percentile bootstrap that stood here before it, which is kept in this
file alone. Below, how often the paired t test finds a difference of the size that `stats.detectable` gives.
"""

from collections.abc import Callable, Mapping
from math import exp, sqrt
from typing import Final

import numpy as np
from numpy.typing import NDArray

from paftbench.analysis.stats import CONFIDENCE, detectable, t_quantile

Floats = NDArray[np.float64]
Draw = Callable[[np.random.Generator, tuple[int, int]], Floats]

SIZES: Final = (5, 10)
SWEEPS: Final = 10_000
RESAMPLES: Final = 1000
# How to draw, and the mean of what is drawn.
POPULATIONS: Final[Mapping[str, tuple[Draw, float]]] = {
    "normal": (lambda draws, shape: draws.standard_normal(shape), 0.0),
    "exponential": (lambda draws, shape: draws.standard_exponential(shape), 1.0),
    "lognormal": (lambda draws, shape: draws.lognormal(size=shape), exp(0.5)),
}


def t_bounds(values_SN: Floats) -> tuple[Floats, Floats]:
    """`stats.t_interval` of every row: S = sweeps, N = seeds."""
    count = values_SN.shape[1]
    half = t_quantile((1 + CONFIDENCE) / 2, count - 1) * values_SN.std(axis=1, ddof=1) / sqrt(count)
    return values_SN.mean(axis=1) - half, values_SN.mean(axis=1) + half


def bootstrap_bounds(values_SN: Floats) -> tuple[Floats, Floats]:
    """The percentile bootstrap: quantiles of the means of seeds drawn with replacement."""
    count = values_SN.shape[1]
    drawn = np.random.default_rng(0).integers(count, size=(RESAMPLES, count))
    weights_RN = np.stack([np.bincount(row, minlength=count) for row in drawn]) / count
    low, high = np.quantile(values_SN @ weights_RN.T, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2], axis=1)
    return low, high


METHODS: Final = {"paired t": t_bounds, "percentile bootstrap": bootstrap_bounds}


def coverage(method: str, population: str, seeds: int) -> float:
    """The share of intervals that hold the mean; the same numbers at every call."""
    draw, mean = POPULATIONS[population]
    low, high = METHODS[method](draw(np.random.default_rng(seeds), (SWEEPS, seeds)))
    return float(np.mean((low <= mean) & (mean <= high)))


def power(seeds: int) -> float:
    """How often the test finds a normal difference of the detectable size."""
    scores = np.sqrt((seeds - 1) / seeds) * np.resize([1.0, -1.0], seeds)
    effect = (detectable(list(scores)) or 0.0) / float(np.std(scores, ddof=1))
    low, _ = t_bounds(np.random.default_rng(seeds).standard_normal((SWEEPS, seeds)) + effect)
    return float(np.mean(low > 0))


def table() -> str:
    """The page's table, in Markdown: percentages."""
    head = ["95 % interval", "seeds", *POPULATIONS]
    lines = [f"| {' | '.join(head)} |", "|---|---|--:|--:|--:|"]
    for method in METHODS:
        for seeds in SIZES:
            shares = [f"{100 * coverage(method, population, seeds):.0f}" for population in POPULATIONS]
            lines.append(f"| {' | '.join([method, str(seeds), *shares])} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(table())
    found = ", ".join(f"{100 * power(seeds):.0f} % with {seeds}" for seeds in SIZES)
    print(f"power at the detectable difference: {found}")
