"""The paper's numbers as records; where they come from is said in data/README.md.

Source: "Capturing and Mitigating Gradient Aggregation Errors for Fault-Tolerant Distributed Training", first version,
https://openreview.net/forum?id=cPZepCZlFW. All are of one seed and of rank 0's replica.
"""

import csv
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Annotated, Any, Final

from pydantic import BeforeValidator, TypeAdapter

from paftbench.errors import Missing

Std = Annotated[float | None, BeforeValidator(lambda text: text or None)]  # an empty cell is none

SOURCE: Final = "PAFT paper, first version, openreview.net/forum?id=cPZepCZlFW"


@dataclass(frozen=True, kw_only=True)
class PrintedNumber:
    """One number of Tables 1 to 3: test accuracy in %, or seconds per iteration; `noise_std` is None in Table 3."""

    table: int
    workload: str
    world_size: int
    noise_std: Std
    method: str
    value: float
    unit: str


@dataclass(frozen=True, kw_only=True)
class Curve:
    """One digitised curve; `noise_std` is None for training without faults."""

    figure: str
    method: str
    noise_std: Std
    x: tuple[float, ...]
    y: tuple[float, ...]

    @property
    def final(self) -> float:
        """Where the curve ends."""
        return self.y[-1]


@dataclass(frozen=True, kw_only=True)
class Plot:
    """What a digitised figure shows, and its axes."""

    figure: str
    setting: str
    y: str
    x: str


_ENTRY, _CURVE = TypeAdapter(PrintedNumber), TypeAdapter(Curve)


@cache
def entries(table: int) -> tuple[PrintedNumber, ...]:
    """The numbers of a printed table."""
    return tuple(_ENTRY.validate_python(row) for row in _rows("tables.csv") if row["table"] == str(table))


def printed(table: int, method: str, world_size: int, noise_std: float | None = None) -> float:
    """One number of a printed table; `LookupError` where it prints none."""
    for entry in entries(table):
        if (entry.method, entry.world_size, entry.noise_std) == (method, world_size, noise_std):
            return entry.value
    raise Missing(f"Table {table} has no {method} with {world_size} workers at noise {noise_std}")


@cache
def curves(figure: str) -> tuple[Curve, ...]:
    """The curves of a digitised figure; `LookupError` for an unknown one."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for row in _rows("curves.csv"):
        if row["figure"] == figure:
            curve = found.setdefault((row["method"], row["noise_std"]), {**row, "x": [], "y": []})
            curve["x"].append(row["x"])
            curve["y"].append(row["y"])
    if not found:
        raise Missing(f"no curves of figure {figure!r}")
    return tuple(_CURVE.validate_python(curve) for curve in found.values())


def final(figure: str, method: str, noise_std: float | None = None) -> float:
    """Where a digitised curve ends; `LookupError` where there is none."""
    for curve in curves(figure):
        if (curve.method, curve.noise_std) == (method, noise_std):
            return curve.final
    raise Missing(f"figure {figure} has no curve of {method} at noise {noise_std}")


@cache
def plot(figure: str) -> Plot:
    """Setting and axes of a digitised figure; `LookupError` for an unknown one."""
    for row in _rows("figures.csv"):
        if row["figure"] == figure:
            return Plot(**row)
    raise Missing(f"no figure {figure!r}")


@cache
def _rows(name: str) -> tuple[dict[str, str], ...]:
    text = (files("paftbench.paper") / "data" / name).read_text(encoding="utf-8")
    return tuple(csv.DictReader(text.splitlines()))
