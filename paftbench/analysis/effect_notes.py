"""Below a table: the smallest effect that its seeds show, and the grain of its evaluation."""

from collections.abc import Iterator, Sequence
from math import floor
from statistics import median
from typing import Final

from paftbench.analysis.table_row import TableRow
from paftbench.analysis.text import number
from paftbench.records.roles import DDP, GOLDEN

ACCURACY: Final = "accuracy"  # a metric that is a share of examples
_AGAINST: Final = {GOLDEN: "golden", DDP: "plain DDP"}


def notes_of(found: Sequence[TableRow]) -> list[str]:
    """Lines for the foot of a table of cells: what its seeds would show, what its evaluation can tell apart."""
    metrics = dict.fromkeys(row.metric for row in found if row.metric)
    several = len(metrics) > 1
    lines = [line for metric in metrics for line in _effects(found, metric, f"{metric}, " if several else "")]
    if lines:
        lines.insert(0, "Smallest mean difference that such seeds show 4 times in 5 (paired t), median..widest cell:")
    return [*lines, *dict.fromkeys(line for row in found if (line := _grain(row)))]


def _effects(found: Sequence[TableRow], metric: str, prefix: str) -> Iterator[str]:
    """A line per yardstick; cells whose differences are all equal have no spread to tell by."""
    for key, name in _AGAINST.items():
        grids: dict[str, list[float]] = {}
        for row in found:
            if row.metric == metric and (least := row.detectable[key]):
                grids.setdefault(row.grid, []).append(least)
        texts = [f"{grid} {_median_to_widest(cells)}".strip() for grid, cells in grids.items()]
        if texts:
            yield f"  {prefix}from {name}: {', '.join(texts)}."


def _median_to_widest(cells: Sequence[float]) -> str:
    low, high = number(median(cells)), number(max(cells))
    return low if low == high else f"{low}..{high}"


def _grain(row: TableRow) -> str:
    """Of an accuracy: what one example is, and how many the tolerance is."""
    count = row.examples
    if count is None or row.metric != ACCURACY:
        return ""
    grain, many = 1 / count, floor(row.tolerance * count + 1e-9)
    return f"{ACCURACY}: {count} evaluation examples, one is {grain:.2g}; the tolerance {row.tolerance:g} is {many}."
