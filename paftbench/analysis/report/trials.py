"""The trials as a table that people sort: every value as text to read and as a key to sort by."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import isinf, isnan
from typing import Any, Final

from paftbench.analysis.cells import cells
from paftbench.analysis.report.summary import outcome_counts
from paftbench.analysis.runs import VIEWS, Sweep
from paftbench.analysis.text import compact, number, size
from paftbench.analysis.tidy import LAST_KEY, Row, trial_rows

Show = Callable[[Any], str]


@dataclass(frozen=True, kw_only=True)
class Value:
    """What is read, and what is compared: a number in JavaScript's words, text, or nothing where nothing is known."""

    text: str
    key: str


@dataclass(frozen=True, kw_only=True)
class Column:
    """A heading; `numeric` columns are compared as numbers. `meaning` explains the heading."""

    name: str
    heading: str
    meaning: str
    numeric: bool


@dataclass(frozen=True, kw_only=True)
class TrialTable:
    """`lines` are (id, outcome, the values in the order of the columns); `outcomes` counts them."""

    columns: Sequence[Column]
    lines: Sequence[tuple[str, str, Sequence[Value]]]
    outcomes: Mapping[str, int]


def _milliseconds(seconds: float | None) -> str:
    return "-" if seconds is None else f"{1000 * seconds:.1f}"


def _times(ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio:.2f}"


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.0%}"


def _degree(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else "-" if value is None else str(value)


# Column of the row -> heading, what it means, how a value is written. Key columns stand before these.
_SHOWN: Final[Mapping[str, tuple[str, str, Show]]] = {
    "outcome": ("outcome", "how the trial ended", str),
    **{
        view: (view, f"quality at the end: {view.replace('_', ' ')}; chance where the run broke down", number)
        for view in VIEWS
    },
    "gap_closed": ("gap closed", "share of the damage undone, by the judge; - where there is no gap", _percent),
    "divergence_max": ("divergence", "the largest", number),
    "nsr_median": ("nsr", "noise-to-signal ratio of the median step", number),
    "strikes_drawn": ("strikes", "drawn over all ranks and steps", compact),
    "syncs": ("syncs", "synchronisations", compact),
    "extra_bytes": ("extra bytes", "that one rank put into the mitigation's collectives", size),
    "overhead": ("overhead", "step time over plain DDP's", _times),
    "step_median_s": ("step, ms", "median time of a step, without measuring and evaluating", _milliseconds),
    "total_s": ("total, s", "time of the whole trial", number),
    "stopped_after": ("stopped after", "completed steps of a trial that stopped early", compact),
    "name": ("name", "as -k and --trial know it", str),
    "id": ("id", "the name of the trial's directory", str),
}
_TWICE = ("id", "name", "label.grid")  # key columns that stand elsewhere, or are part of the name


def trial_table(sweep: Sweep) -> TrialTable:
    """A line per trial, in the order of the cells; columns in which no trial has a value are left out."""
    place = {run.id: i for i, run in enumerate(run for cell in cells(sweep) for run in cell.runs)}
    rows = sorted(trial_rows(sweep), key=lambda row: place[row["id"]])
    shown = [name for name in (*_key_columns(rows), *_SHOWN) if any(_value(row, name).text != "-" for row in rows)]
    return TrialTable(
        columns=[_column(name, rows) for name in shown],
        lines=[(row["id"], row["outcome"], [_value(row, name) for name in shown]) for row in rows],
        outcomes=outcome_counts(sweep.selected),
    )


def _key_columns(rows: Sequence[Row]) -> list[str]:
    """What tells trials apart; one column of degrees where no trial has two of them."""
    names = list(rows[0])
    keys = [name for name in names[: names.index(LAST_KEY) + 1] if name not in _TWICE]
    if len({row["experiment"] for row in rows}) == 1:
        keys.remove("experiment")
    degrees = [name for name in keys if name.startswith("faults.") and name.endswith(".degree")]
    if degrees and all(sum(row[name] is not None for name in degrees) < 2 for row in rows):
        place = keys.index(degrees[0])
        keys = [*keys[:place], "degree", *(name for name in keys[place:] if name not in degrees)]
    return keys


def _column(name: str, rows: Sequence[Row]) -> Column:
    heading, meaning, _ = _SHOWN.get(name, (name.removeprefix("faults.").removeprefix("label."), name, str))
    values = [row[name] for row in rows if row[name] is not None]
    numeric = all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
    return Column(name=name, heading=heading, meaning=meaning, numeric=numeric)


def _value(row: Row, name: str) -> Value:
    value = row[name]
    show = _SHOWN[name][2] if name in _SHOWN else _degree
    text = "no gap" if name == "gap_closed" and row["gap"] == "no gap" else show(value)
    return Value(text=text, key=_key(value))


def _key(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float) and isnan(value):
        return "NaN"
    if isinstance(value, float) and isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return repr(value) if isinstance(value, float) else str(value)
