"""The injection log in numbers: strikes by site, bit class, parameter and magnitude."""

import shutil
from collections import Counter
from math import floor, isfinite, log10
from pathlib import Path
from typing import Any

from paftbench.analysis.cells import Cell, cells
from paftbench.analysis.runs import load
from paftbench.analysis.text import compact, draw
from paftbench.errors import Refused
from paftbench.records.injection import InjectionRow

KINDS = ("site", "bit class", "parameter", "magnitude")
_MANTISSA = {"fp64": 52, "fp32": 23, "bf16": 7, "fp16": 10}
_WIDTH = {"fp64": 64, "fp32": 32, "bf16": 16, "fp16": 16}


def injections_rows(directory: Path, by: str | None = None) -> list[dict[str, Any]]:
    """One mapping per kind (site, bit class, parameter, magnitude) and value, `events` being log rows.

    A dense event counts the elements that it changed as strikes; its parameter is the whole gradient, or all
    parameters or a whole kind of optimizer state where it struck memory. Magnitude is the decade of |after - before|,
    for a dense event of its RMS per element.
    `by` splits by an axis.
    """
    sweep = load(Path(directory))
    found: list[dict[str, Any]] = []
    for cell in cells(sweep, by) if by else [Cell(grid="", labels={}, runs=sweep.selected)]:
        found += _of_cell(cell, by)
    if not found:
        raise Refused(f"no strikes are logged in {directory}: no faults, or none was drawn")
    return found


def _of_cell(cell: Cell, by: str | None) -> list[dict[str, Any]]:
    events: Counter[tuple[str, str]] = Counter()
    strikes: Counter[tuple[str, str]] = Counter()
    landed: Counter[tuple[str, str]] = Counter()
    for run in cell.runs:
        precision = run.trial.precision or "fp32"
        for row in run.injections():
            elements = _elements(row)
            for key in zip(KINDS, (row.site, _bit_class(row, precision), _parameter(row), _decade(row)), strict=True):
                events[key] += 1
                strikes[key] += elements
                landed[key] += elements if row.landed else 0
    ordered = sorted(events, key=lambda key: (KINDS.index(key[0]), *_order(key[1], strikes[key], key[0])))
    split = {} if by is None else {by: cell.grid if by == "grid" else cell.labels.get(by)}
    return [
        {**split, "by": kind, "value": value, "events": events[kind, value], "strikes": strikes[kind, value],
         "landed": landed[kind, value]}
        for kind, value in ordered
    ]  # fmt: skip


def _elements(row: InjectionRow) -> int:
    return 1 if row.elements is None else row.elements


def _parameter(row: InjectionRow) -> str:
    whole = "(all parameters)" if row.site == "parameter" else "(whole gradient)"
    return row.parameter or whole


def _bit_class(row: InjectionRow, precision: str) -> str:
    bits = row.bit
    if bits is None:
        return "none (not a bit flip)"
    # A gradient may be wider than the trial's precision: the bits that were logged tell.
    digits = len((row.bits_before or "").removeprefix("0x"))
    dtype = {16: "fp64", 8: "fp32"}.get(digits, precision)
    kinds = {_kind_of(bit, dtype) for bit in (bits if isinstance(bits, tuple) else (bits,))}
    return kinds.pop() if len(kinds) == 1 else "several"


def _kind_of(bit: int, dtype: str) -> str:
    if bit == _WIDTH[dtype] - 1:
        return "sign"
    return "mantissa" if bit < _MANTISSA[dtype] else "exponent"


def _decade(row: InjectionRow) -> str:
    before, after, norm = row.value_before, row.value_after, row.norm
    if before is not None and after is not None:
        change = abs(after - before)
    elif norm is not None:
        change = norm / max(1, _elements(row)) ** 0.5
    else:
        return "not logged"
    if not isfinite(change):
        return "not finite"
    return "0" if change == 0 else f"1e{floor(log10(change)):+03d}"


def _order(value: str, strikes: int, kind: str) -> tuple[float, str]:
    if kind != "magnitude":
        return -strikes, value
    known = {"0": -1e9, "not finite": 1e9, "not logged": 2e9}
    return (known[value] if value in known else float(value[2:])), value


def render_injections(directory: Path, by: str | None = None, width: int | None = None) -> str:
    """The same as text; says where a log was cut at its size cap."""
    found = injections_rows(directory, by)
    columns = {} if by is None else {by: [str(row[by]) for row in found]}
    columns |= {
        "by": [row["by"] for row in found],
        "value": [row["value"] for row in found],
        **{name: [compact(row[name]) for row in found] for name in ("events", "strikes", "landed")},
    }
    left = ("by", "value", *(() if by is None else (by,)))
    width = width or shutil.get_terminal_size((140, 24)).columns
    text = draw(columns, sections=[(row.get(by or ""), row["by"]) for row in found], width=width, left=left)
    logged = sum(row["strikes"] for row in found if row["by"] == "site")
    changed = sum(run.found.strikes.changed or 0 for run in load(Path(directory)).selected)
    if changed > logged:
        text += f"\nThe logs hold {compact(logged)} of {compact(changed)} strikes: rows stop at the size cap."
    return text
