"""What a sweep could have found: the smallest effect that its seeds show, and the grain of its evaluation."""

from collections.abc import Iterator, Mapping, Sequence
from math import floor
from statistics import median
from typing import Any, Final

from paftbench.analysis.quality import quality_lost
from paftbench.analysis.runs import Run, Sweep, View
from paftbench.analysis.stats import detectable
from paftbench.analysis.text import number
from paftbench.records.roles import DDP, GOLDEN
from paftbench.records.seeds import Seed

ACCURACY: Final = "accuracy"  # a metric that is a share of examples
_AGAINST: Final = {GOLDEN: "golden", DDP: "plain DDP"}


def detectable_of(sweep: Sweep, runs: Sequence[Run], view: View) -> dict[str, float | None]:
    """Of the runs of a cell, each against golden and against plain DDP of its own seed; None where that is itself."""
    own = {
        GOLDEN: [(run, sweep.golden(run)) for run in runs if not run.golden],
        DDP: [(run, sweep.ddp(run)) for run in runs if run.trial.mitigations],
    }
    return {name: _detectable(sweep, pairs, view) for name, pairs in own.items()}


def _detectable(sweep: Sweep, pairs: Sequence[tuple[Run, Run | None]], view: View) -> float | None:
    by_seed: dict[Seed, list[float]] = {}
    for run, other in pairs:
        if other is not None and (lost := quality_lost(sweep, run, other, view)) is not None:
            by_seed.setdefault(run.sample, []).append(lost)
    return detectable([sum(group) / len(group) for group in by_seed.values()])


def examples_of(runs: Sequence[Run]) -> int | None:
    """How many examples an evaluation has; None for records that do not say, and for runs that differ."""
    known = [count for run in runs if (count := run.found.metric.examples) is not None]
    return known[0] if known and known.count(known[0]) == len(known) else None


def notes_of(found: Sequence[Mapping[str, Any]]) -> list[str]:
    """Lines for the foot of a table of cells: what its seeds would show, what its evaluation can tell apart."""
    metrics = dict.fromkeys(row["metric"] for row in found if row["metric"])
    several = len(metrics) > 1
    lines = [line for metric in metrics for line in _effects(found, metric, f"{metric}, " if several else "")]
    if lines:
        lines.insert(0, "Smallest mean difference that such seeds show 4 times in 5 (paired t), median..widest cell:")
    return [*lines, *dict.fromkeys(line for row in found if (line := _grain(row)))]


def _effects(found: Sequence[Mapping[str, Any]], metric: str, prefix: str) -> Iterator[str]:
    """A line per yardstick; cells whose differences are all equal have no spread to tell by."""
    for key, name in _AGAINST.items():
        grids: dict[str, list[float]] = {}
        for row in found:
            if row["metric"] == metric and row["detectable"][key]:
                grids.setdefault(row["grid"], []).append(row["detectable"][key])
        texts = [f"{grid} {_median_to_widest(cells)}".strip() for grid, cells in grids.items()]
        if texts:
            yield f"  {prefix}from {name}: {', '.join(texts)}."


def _median_to_widest(cells: Sequence[float]) -> str:
    low, high = number(median(cells)), number(max(cells))
    return low if low == high else f"{low}..{high}"


def _grain(row: Mapping[str, Any]) -> str:
    """Of an accuracy: what one example is, and how many the tolerance is."""
    count, metric = row["examples"], row["metric"]
    if count is None or metric != ACCURACY:
        return ""
    tolerance = row["tolerance"]
    many = floor(tolerance * count + 1e-9)
    return f"{metric}: {count} evaluation examples, one is {1 / count:.2g}; the tolerance {tolerance:g} is {many}."
