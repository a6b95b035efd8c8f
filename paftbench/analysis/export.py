"""Rows of a sweep as one file that other tools read: csv, json or parquet."""

import csv
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paftbench.analysis.runs import load
from paftbench.analysis.tidy import TEXT, Row, step_rows, trial_rows
from paftbench.errors import Refused
from paftbench.printable import unicode
from paftbench.records.kinds import BEYOND
from paftbench.store.files import encode_line, replacing

if TYPE_CHECKING:
    import pyarrow

Rows = Callable[[], Iterable[Row]]  # called twice: the columns are known only after the last row
_ROWS_AT_A_TIME = 20_000
PERIODS = "periods"  # the one column of lists of numbers


def export(directory: Path, to: Path, *, steps: bool = False) -> Path:
    """Write a row per trial, or per step, to `to`; its suffix says how. The file is there whole or not at all.

    What was not measured is an empty field (csv) or null; NaN and infinities are kept beside it: `nan`, `inf` and
    `-inf` in csv, the same as strings in json, the numbers themselves in parquet. `ValueError` for another suffix, for
    parquet without pyarrow, and where no step is recorded; errors as `runs.load`.
    """
    write = _WRITERS.get(to.suffix.lower())
    if write is None:
        raise Refused(f"--to (the file to write) {to} must end in one of {', '.join(_WRITERS)}")
    if write is _write_parquet:
        _need_pyarrow()
    sweep = load(directory)
    rows: Rows = (lambda: step_rows(sweep.selected)) if steps else (lambda: trial_rows(sweep))
    if next(iter(rows()), None) is None:
        raise Refused(f"no step is recorded in {directory}")
    with replacing(to) as temporary:
        write(temporary, rows)
    return to


def _columns(rows: Iterable[Row]) -> dict[str, set[type]]:
    """Every column, and the types of its values; a whole number of more than 64 bits counts as a float."""
    found: dict[str, set[type]] = {}
    for row in rows:
        for name, value in row.items():
            types = found.setdefault(name, set())
            if value is not None:
                types.add(float if type(value) is int and abs(value) >= BEYOND else type(value))
    return found


def _write_csv(path: Path, rows: Rows) -> None:
    with path.open("w", encoding="utf-8", errors="backslashreplace", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(_columns(rows())), extrasaction="ignore")
        writer.writeheader()
        writer.writerows({name: _field(value) for name, value in row.items()} for row in rows())


def _field(value: Any) -> Any:
    return json.dumps(value) if isinstance(value, list) else value


def _write_json(path: Path, rows: Rows) -> None:
    names = dict.fromkeys(_columns(rows()))
    with path.open("w", encoding="utf-8") as file:
        for count, row in enumerate(rows()):
            file.write((",\n" if count else "[") + encode_line(names | row).rstrip("\n"))
        file.write("]\n")


def _need_pyarrow() -> None:
    try:
        import pyarrow.parquet  # noqa: F401
    except ImportError:
        raise Refused("a parquet file needs pyarrow: pip install 'paftbench[parquet]', or export csv") from None


def _write_parquet(path: Path, rows: Rows) -> None:
    import pyarrow
    import pyarrow.parquet

    columns = _columns(rows())
    schema = pyarrow.schema([(name, _arrow_type(name, types)) for name, types in columns.items()])
    convert: dict[Any, Callable[[Any], Any]] = {pyarrow.string(): _as_text, pyarrow.float64(): float}
    by_name = {name: convert.get(schema.field(name).type) for name in columns}
    with pyarrow.parquet.ParquetWriter(path, schema) as writer:
        for part in _parts(rows()):
            lines = [{name: _cell(row.get(name), own) for name, own in by_name.items()} for row in part]
            writer.write_table(pyarrow.Table.from_pylist(lines, schema=schema))


def _arrow_type(name: str, types: set[type]) -> "pyarrow.DataType":
    """The narrowest that holds all values, text where they are of several kinds; a number where there are none."""
    import pyarrow

    if types == {bool}:
        return pyarrow.bool_()
    if types == {int}:
        return pyarrow.int64()
    if types <= {int, float} and name not in TEXT:
        return pyarrow.float64()
    return pyarrow.list_(pyarrow.float64()) if types == {list} and name == PERIODS else pyarrow.string()


def _as_text(value: Any) -> str:
    return unicode(str(value))


def _cell(value: Any, convert: Callable[[Any], Any] | None) -> Any:
    return value if value is None or convert is None else convert(value)


def _parts(rows: Iterable[Row]) -> Iterator[list[Row]]:
    following = iter(rows)
    while part := list(islice(following, _ROWS_AT_A_TIME)):
        yield part


_WRITERS: Mapping[str, Callable[[Path, Rows], None]] = {
    ".csv": _write_csv,
    ".json": _write_json,
    ".parquet": _write_parquet,
}
