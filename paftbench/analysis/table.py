"""The table of a sweep: a row per cell."""

import shutil
from collections.abc import Callable, Collection, Sequence
from functools import partial
from math import isnan
from pathlib import Path
from statistics import median
from typing import Any

from paftbench.analysis.cells import Cell, cells, gap_over, overhead
from paftbench.analysis.effects import detectable_of, examples_of, notes_of
from paftbench.analysis.quality import broken, quality
from paftbench.analysis.runs import VIEWS, Run, Sweep, load
from paftbench.analysis.stats import INTERVAL, NO_CLAIM, Summary, mean_of, summarise, wilson
from paftbench.analysis.text import compact, counted, draw, needed, number, size

Row = dict[str, Any]
Columns = dict[str, list[str]]
_PARTS = {
    "divergence": ("final", "max", "before_sync"), "nsr": ("median", "max"), "strikes": ("drawn", "landed", "changed"),
}  # fmt: skip


def rows(directory: Path, by: str | None = None) -> list[Row]:
    """One mapping per cell, numbers first: a metric is its mean over seeds, `points` and `ranges` hold the rest.

    A run that broke down counts in a metric as chance (`analysis.quality`); `broke_down` says how many did. `measured`
    says for every number of how many of the `finished` trials it is the mean: not of a trial that ended before it could
    be measured. `claim` goes by the seeds that count in the judged metric. `detectable` is the smallest mean difference
    from golden and from plain DDP, by the judge, that the seeds at hand would show (`stats.detectable`), `examples` of
    how many evaluated ones the metric is the mean.
    `gap_closed` is the judge's: a number, "no gap", or None where there is nothing to compare with;
    `gap_closed_by_view` has all three. Values that were not measured are None. Errors as `runs.load` and `cells.cells`.
    """
    sweep = load(Path(directory))
    return [_row(sweep, cell) for cell in cells(sweep, by)]


def _row(sweep: Sweep, cell: Cell) -> Row:
    judge = cell.runs[0].judge
    seeds = [run.sample for run in cell.done]
    metrics = {view: summarise(seeds, [quality(sweep, run, view) for run in cell.done]) for view in VIEWS}
    gaps = {view: gap_over(sweep, cell.done, view) for view in VIEWS}
    parts = {key: _parts(cell, key) for key in _PARTS}
    extra = _measured(cell, lambda run: run.found.mitigation.bytes)
    overheads = _measured(cell, lambda run: overhead(sweep, run))
    return {
        "grid": cell.grid,
        "cell": cell.text,
        "labels": dict(cell.labels),
        "trials": len(cell.runs),
        "finished": len(cell.done),
        "seeds": cell.seeds,
        "claim": cell.claim,
        "outcomes": cell.outcomes(),
        "rates": _rates(cell),
        "metric": next((name for run in cell.done if (name := run.found.metric.name)), None),
        "judge": judge,
        "tolerance": float(cell.runs[0].planned.tolerance),
        "examples": examples_of(cell.done),
        "broke_down": broken(cell.done),
        **{view: metrics[view].mean for view in VIEWS},
        "gap_closed": gaps[judge][0],
        "gap_closed_by_view": {view: gap for view, (gap, _) in gaps.items()},
        **{key: {part: mean_of(values) for part, values in own.items()} for key, own in parts.items()},
        "detectable": detectable_of(sweep, cell.done, judge),
        "periods": _periods(cell),
        "extra_bytes": mean_of(extra),
        "overhead": mean_of(overheads),
        "measured": {
            **{view: len(metrics[view].points) for view in VIEWS},
            "gap_closed": len(gaps[judge][1].points),
            **{key: {part: len(values) for part, values in own.items()} for key, own in parts.items()},
            "extra_bytes": len(extra),
            "overhead": len(overheads),
        },
        "points": {**{view: metrics[view].points for view in VIEWS}, "gap_closed": gaps[judge][1].points},
        "ranges": {
            **{view: _range(metrics[view]) for view in VIEWS},
            "gap_closed": {view: _range(summary) for view, (_, summary) in gaps.items()},
        },
    }


def _measured(cell: Cell, value: Callable[[Run], float | None]) -> list[float]:
    """What the finished runs have of a value."""
    return [known for run in cell.done if (known := value(run)) is not None]


def _parts(cell: Cell, key: str) -> dict[str, list[float]]:
    return {part: _measured(cell, partial(_part, key, part)) for part in _PARTS[key]}


def _part(key: str, part: str, run: Run) -> float | None:
    return getattr(getattr(run.found, key), part)


def _periods(cell: Cell) -> Row | None:
    """Of the synchronisations of all runs; None without any."""
    periods = [period for run in cell.done for period in run.found.mitigation.periods or ()]
    return {"lowest": min(periods), "median": median(periods), "highest": max(periods)} if periods else None


def _range(summary: Summary) -> list[float] | None:
    return None if summary.low is None or summary.high is None else [summary.low, summary.high]


def _rates(cell: Cell) -> dict[str, Row]:
    rated = cell.rated()
    rates = {}
    for outcome in sorted({run.outcome for run in rated}):
        hits = sum(run.outcome == outcome for run in rated)
        low, high = wilson(hits, len(rated))
        rates[outcome] = {"hits": hits, "of": len(rated), "rate": hits / len(rated), "low": low, "high": high}
    return rates


def render(directory: Path, by: str | None = None, width: int | None = None) -> str:
    """The table as text, `width` columns wide (the terminal's, else 140): in two parts where one does not fit.

    The second line of a row holds the range or interval of its numbers.
    """
    found = rows(directory, by)
    width = width or shutil.get_terminal_size((140, 24)).columns
    names, effects, causes = _names(found), _effects(found, VIEWS), _causes(found)
    parts = [names | effects | causes]
    if needed(parts[0]) > width:
        effects = effects if needed(names | effects) <= width else _effects(found, _judges(found))
        flat = _names(found, lines=1)
        parts = [names | effects, (flat if needed(flat | causes) <= width else names) | causes]
    sections = [row["grid"] for row in found]
    texts = [draw(part, sections=sections, width=width, left=("grid", "cell", "outcomes")) for part in parts]
    return "\n\n".join([*texts, "\n".join(notes(found))])


def columns(found: Sequence[Row]) -> Columns:
    """Every column of the table as text by its heading; the second line of a cell holds its range or interval."""
    return _names(found) | _effects(found, VIEWS) | _causes(found)


def _judges(found: Sequence[Row]) -> list[str]:
    return sorted({row["judge"] for row in found})


def _names(found: Sequence[Row], lines: int = 2) -> Columns:
    names: Columns = {"grid": [row["grid"] for row in found]} if any(row["grid"] for row in found) else {}
    names["cell"] = [row["cell"].replace(" ", "\n", lines - 1) for row in found]
    names["seeds"] = [f"{row['seeds']}{'*' if row['claim'] == 'none' else ''}" for row in found]
    return names


def _causes(found: Sequence[Row]) -> Columns:
    periods = [_chosen(row["periods"]) for row in found]
    return {
        "divergence": [_of(row, number(row["divergence"]["max"]), "divergence", "max") for row in found],
        "nsr": [_of(row, number(row["nsr"]["median"]), "nsr", "median") for row in found],
        "nsr max": [_of(row, number(row["nsr"]["max"]), "nsr", "max") for row in found],
        "strikes": [_of(row, compact(row["strikes"]["drawn"]), "strikes", "drawn") for row in found],
        **({"period": periods} if any(text != "-" for text in periods) else {}),
        "extra bytes": [_of(row, size(row["extra_bytes"]), "extra_bytes") for row in found],
        "overhead": [
            "-" if row["overhead"] is None else _of(row, f"{row['overhead']:.2f}x", "overhead") for row in found
        ],
    }


def _effects(found: Sequence[Row], ranged: Collection[str]) -> Columns:
    return {
        "outcomes": [_outcomes(row) for row in found],
        **{
            view: [
                _spread(_quality(row, view), row["ranges"][view] if view in ranged else None, number) for row in found
            ]
            for view in VIEWS
        },
        "gap_closed": [_closed(row) for row in found],
    }


def _chosen(periods: Row | None) -> str:
    """`10`, or of periods that were chosen `2..10 (4)`."""
    if periods is None:
        return "-"
    low, high = periods["lowest"], periods["highest"]
    return f"{low}" if low == high else f"{low}..{high} ({periods['median']:g})"


def _of(row: Row, text: str, *keys: str) -> str:
    """A mean with `(k/n)` where only k of the n finished trials have the number."""
    count = row["measured"]
    for key in keys:
        count = count[key]
    return text if count in (0, row["finished"]) else f"{text} ({count}/{row['finished']})"


def _quality(row: Row, view: str) -> str:
    """A mean with `k†` where k of its runs broke down; that alone where nobody knows what they count as."""
    count, mean = row["broke_down"], row[view]
    if count and mean is not None and isnan(mean):
        return f"{count} of {row['finished']}\nbroke down"
    return _of(row, number(mean) + _dagger(count), view)


def _dagger(count: int) -> str:
    return f" {count}†" if count else ""


def _outcomes(row: Row) -> str:
    return counted(row["outcomes"]).replace(", ", "\n")


def _spread(text: str, bounds: Sequence[float] | None, show: Callable[[float], str]) -> str:
    if bounds is None or show(bounds[0]) == show(bounds[1]) == text:
        return text
    return f"{text}\n{show(bounds[0])}..{show(bounds[1])}"


def _closed(row: Row) -> str:
    gap = row["gap_closed"]
    if not isinstance(gap, float):
        return gap or "-"
    if isnan(gap):
        return "undefined"
    text = _of(row, f"{gap:.0%}{_dagger(row['broke_down'])}", "gap_closed")
    return _spread(text, row["ranges"]["gap_closed"][row["judge"]], lambda bound: f"{bound:.0%}")


def notes(found: Sequence[Row]) -> list[str]:
    """What a reader of the table must know."""
    metric = ", ".join(sorted({row["metric"] for row in found if row["metric"]}))
    said = [
        f"{metric or 'metric'}: mean over seeds; judged by {', '.join(_judges(found))}."
        " Per run: the largest divergence, nsr of the median and of the worst step, strikes, extra bytes."
    ]
    if any(row["periods"] and row["periods"]["lowest"] < row["periods"]["highest"] for row in found):
        said.append("period: lowest..highest (median) of those chosen at the synchronisations of all runs.")
    if any(row["claim"] == "range" for row in found):
        said.append("low..high: the range of 3 or 4 seeds.")
    if any(row["claim"] == "interval" for row in found):
        said.append(
            f"low..high of 5 or more seeds: {INTERVAL} interval, Student's over seeds; approximate for gap_closed, a"
            " ratio within a seed."
        )
    if any(row["broke_down"] for row in found):
        said.append("k†: k of the runs broke down (nonfinite, crashed, hung) and count as the metric's chance.")
    if any("/" in text for name, texts in columns(found).items() if name not in ("grid", "cell") for text in texts):
        said.append("(k/n): the mean of k of n finished trials, the others have no such number.")
    if any(row["claim"] == "none" for row in found):
        said.append(f"* fewer than 3 seeds with a number: {NO_CLAIM}.")
    return [*said, *notes_of(found)]
