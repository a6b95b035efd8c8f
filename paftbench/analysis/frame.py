"""Results as pandas frames."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from paftbench.analysis.runs import Run, load
from paftbench.analysis.tidy import TEXT, step_rows, trial_rows
from paftbench.errors import Missing
from paftbench.store.directory import read_record


class Results(pd.DataFrame):
    """A row per trial. Choosing, sorting and joining rows keeps it one, as long as it has its column `path`."""

    @property
    def _constructor(self) -> type["Results"]:
        return Results

    def steps(self, *, per_rank: bool = False) -> pd.DataFrame:
        """A row per step of these trials, in their order; `per_rank` adds each rank's loss as `loss_<rank>`.

        `LookupError` where the frame has lost its column `path` or a trial's directory is gone.
        """
        if "path" not in self.columns:
            raise Missing("steps() reads the directories in the column 'path', which this frame has lost")
        runs = [Run(record=read_record(Path(path))) for path in self["path"]]
        return _frame(step_rows(runs, per_rank))


def load_results(path: str | Path) -> Results:
    """The trials of a sweep directory, or the one of a trial directory; docs/reading.md lists the columns.

    What was not measured is NaN, and so is what is not a number; `paftbench export` tells them apart.
    `LookupError` where there are no trials, `ValueError` for another schema or where none has finished.
    """
    sweep = load(Path(path))
    frame = _frame(trial_rows(sweep))
    frame["path"] = [str(run.record.path.resolve()) for run in sweep.selected]
    return Results(frame)


def _frame(rows: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
    """Rows as columns; a name that only some rows have is a column of all."""
    columns: dict[str, list[Any]] = {}
    for count, row in enumerate(rows):
        for name in [name for name in row if name not in columns]:
            columns[name] = [None] * count
        for name, values in columns.items():
            values.append(row.get(name))
    return pd.DataFrame({name: _column(name, values) for name, values in columns.items()})


def _column(name: str, values: list[Any]) -> "pd.Series[Any]":
    """Numbers, text or truth values; without any value NaN, so that numbers stay numbers, or None for text."""
    known = [value for value in values if value is not None]
    if not known and name not in TEXT:
        return pd.Series(values, dtype=float)
    return pd.Series(values, dtype="boolean" if known and all(isinstance(v, bool) for v in known) else None)
