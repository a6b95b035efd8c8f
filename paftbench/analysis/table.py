"""The table of a sweep: a row per cell."""

import shutil
from collections.abc import Callable, Collection, Sequence
from math import isnan
from pathlib import Path
from typing import Any

from paftbench.analysis.cells import cells
from paftbench.analysis.effect_notes import notes_of
from paftbench.analysis.runs import VIEWS, View, load
from paftbench.analysis.stats import INTERVAL, NO_CLAIM, Summary
from paftbench.analysis.table_row import PartialMean, Periods, TableRow, as_mapping, row_of
from paftbench.analysis.text import compact, counted, draw, needed, number, size

Columns = dict[str, list[str]]


def rows(directory: Path, by: str | None = None) -> list[TableRow]:
    """One row per cell. Errors as `runs.load` and `cells.cells`."""
    sweep = load(Path(directory))
    return [row_of(sweep, cell) for cell in cells(sweep, by)]


def json_rows(directory: Path, by: str | None = None) -> list[dict[str, Any]]:
    """The same as mappings, with every point."""
    return [as_mapping(row) for row in rows(directory, by)]


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
    sections = [row.grid for row in found]
    texts = [draw(part, sections=sections, width=width, left=("grid", "cell", "outcomes")) for part in parts]
    return "\n\n".join([*texts, "\n".join(notes(found))])


def columns(found: Sequence[TableRow]) -> Columns:
    """Every column of the table as text by its heading; the second line of a cell holds its range or interval."""
    return _names(found) | _effects(found, VIEWS) | _causes(found)


def notes(found: Sequence[TableRow]) -> list[str]:
    """What a reader of the table must know."""
    metric = ", ".join(sorted({row.metric for row in found if row.metric}))
    said = [
        f"{metric or 'metric'}: mean over seeds; judged by {', '.join(_judges(found))}."
        " Per run: the largest divergence, nsr of the median and of the worst step, strikes, extra bytes."
    ]
    if any(row.periods and row.periods.lowest < row.periods.highest for row in found):
        said.append("period: lowest..highest (median) of those chosen at the synchronisations of all runs.")
    if any(row.claim == "range" for row in found):
        said.append("low..high: the range of 3 or 4 seeds.")
    if any(row.claim == "interval" for row in found):
        said.append(
            f"low..high of 5 or more seeds: {INTERVAL} interval, Student's over seeds; approximate for gap_closed, a"
            " ratio within a seed."
        )
    if any(row.broke_down for row in found):
        said.append("k†: k of the runs broke down (nonfinite, crashed, hung) and count as the metric's chance.")
    if any("/" in text for name, texts in columns(found).items() if name not in ("grid", "cell") for text in texts):
        said.append("(k/n): the mean of k of n finished trials, the others have no such number.")
    if any(row.claim == "none" for row in found):
        said.append(f"* fewer than 3 seeds with a number: {NO_CLAIM}.")
    return [*said, *notes_of(found)]


def _judges(found: Sequence[TableRow]) -> list[View]:
    return sorted({row.judge for row in found})


def _names(found: Sequence[TableRow], lines: int = 2) -> Columns:
    names: Columns = {"grid": [row.grid for row in found]} if any(row.grid for row in found) else {}
    names["cell"] = [row.cell.replace(" ", "\n", lines - 1) for row in found]
    names["seeds"] = [f"{row.seeds}{'*' if row.claim == 'none' else ''}" for row in found]
    return names


def _causes(found: Sequence[TableRow]) -> Columns:
    periods = [_chosen(row.periods) for row in found]
    return {
        "divergence": [_shown(row, row.part("divergence.max"), number) for row in found],
        "nsr": [_shown(row, row.part("nsr.median"), number) for row in found],
        "nsr max": [_shown(row, row.part("nsr.max"), number) for row in found],
        "strikes": [_shown(row, row.part("strikes.drawn"), compact) for row in found],
        **({"period": periods} if any(text != "-" for text in periods) else {}),
        "extra bytes": [_shown(row, row.extra_bytes, size) for row in found],
        "overhead": [_shown(row, row.overhead, lambda mean: "-" if mean is None else f"{mean:.2f}x") for row in found],
    }


def _effects(found: Sequence[TableRow], ranged: Collection[View]) -> Columns:
    return {
        "outcomes": [counted(row.outcomes).replace(", ", "\n") for row in found],
        **{
            view: [
                _spread(_quality(row, view), row.qualities[view] if view in ranged else None, number) for row in found
            ]
            for view in VIEWS
        },
        "gap_closed": [_closed(row) for row in found],
    }


def _chosen(periods: Periods | None) -> str:
    """`10`, or of periods that were chosen `2..10 (4)`."""
    if periods is None:
        return "-"
    low, high = periods.lowest, periods.highest
    return f"{low}" if low == high else f"{low}..{high} ({periods.median:g})"


def _shown(row: TableRow, value: PartialMean, show: Callable[[float | None], str]) -> str:
    return _of(row, show(value.mean), value.count)


def _of(row: TableRow, text: str, count: int) -> str:
    """A mean with `(k/n)` where only k of the n finished trials have the number."""
    return text if count in (0, row.finished) else f"{text} ({count}/{row.finished})"


def _quality(row: TableRow, view: View) -> str:
    """A mean with `k†` where k of its runs broke down; that alone where nobody knows what they count as."""
    count, found = row.broke_down, row.qualities[view]
    if count and found.mean is not None and isnan(found.mean):
        return f"{count} of {row.finished}\nbroke down"
    return _of(row, number(found.mean) + _dagger(count), len(found.points))


def _dagger(count: int) -> str:
    return f" {count}†" if count else ""


def _spread(text: str, summary: Summary | None, show: Callable[[float], str]) -> str:
    bounds = None if summary is None else summary.bounds
    if bounds is None or show(bounds[0]) == show(bounds[1]) == text:
        return text
    return f"{text}\n{show(bounds[0])}..{show(bounds[1])}"


def _closed(row: TableRow) -> str:
    gap, summary = row.gaps[row.judge]
    if not isinstance(gap, float):
        return gap or "-"
    if isnan(gap):
        return "undefined"
    text = _of(row, f"{gap:.0%}{_dagger(row.broke_down)}", len(summary.points))
    return _spread(text, summary, lambda bound: f"{bound:.0%}")
