"""Which cells an expectation is about, and whether it can be judged at all: settled before anything runs.

An expectation that selects nothing would pass for ever without a word, so it is an error.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from paftbench.analysis.cells import Cell, cells
from paftbench.analysis.runs import Run, Sweep
from paftbench.errors import Missing, Refused
from paftbench.records.expectation import DEGRADED, Expectation
from paftbench.records.roles import AVERAGING_LIMIT, CLEAN, GOLDEN
from paftbench.suggest import did_you_mean

SHARED: Final = (GOLDEN, CLEAN)  # grids of runs that several cells have in common


@dataclass(frozen=True, kw_only=True)
class Selected:
    """An expectation, where it stands, and its cells, each with the runs of the seeds asked for."""

    place: str
    expectation: Expectation
    cells: tuple[Cell, ...]


def select(expectations: Sequence[Expectation], sweep: Sweep, source: str) -> list[Selected]:
    """The cells of every expectation; works on trials that have not run.

    Yardsticks are selected only by name: golden runs and clean ones by their grid, the averaging limit by its label.
    `LookupError` for one that selects none, with the nearest labels, `ValueError` for one that no run could hold.
    """
    found = cells(sweep)
    selected = []
    for number, expectation in enumerate(expectations):
        place = f"expect[{number}]"
        chosen = tuple(part for cell in found if (part := _part(cell, expectation)) is not None)
        if not chosen:
            nearest = _nearest(expectation.where, found)
            raise Missing(f"{source}: {place}.where selects no cell of this sweep; {nearest}")
        if (idle := _idle(expectation, chosen)) is not None:
            key, label = idle
            nearest = _nearest({**expectation.where, key: label}, found)
            raise Missing(f"{source}: {place}.where selects no cell with {key} {label!r}, which it lists; {nearest}")
        for cell in chosen:
            _check_judgeable(expectation, cell, sweep, f"{source}: {place}")
        selected.append(Selected(place=place, expectation=expectation, cells=chosen))
    return selected


def is_yardstick(cell: Cell) -> bool:
    """Runs that others are measured by: golden, clean, and the averaging limit."""
    return cell.grid in SHARED or cell.labels.get("mitigation") == AVERAGING_LIMIT


def subject_of(cell: Cell) -> str:
    """A cell as people call it: its grid, and its labels."""
    return cell.text if cell.grid in (GOLDEN, "all", "") else f"{cell.grid} {cell.text}"


def _part(cell: Cell, expectation: Expectation) -> Cell | None:
    """The cell with the runs that are meant; None where there are none."""
    where = expectation.where
    if is_yardstick(cell) and not _is_named(cell, where):
        return None
    if not all(key == "seed" or any(_any_of(own, where[key]) for own in _own(key, cell)) for key in where):
        return None
    runs = tuple(run for run in cell.runs if "seed" not in where or _any_of(run.seed, where["seed"]))
    return replace(cell, runs=runs) if runs else None


def _own(key: str, cell: Cell) -> list[Any]:
    """A cell's labels of a key; a golden cell has two of the key grid where grids have golden runs of their own."""
    return ([cell.grid] if key == "grid" else []) + ([cell.labels[key]] if key in cell.labels else [])


def _is_named(cell: Cell, where: Mapping[str, Any]) -> bool:
    named = [str(label) for key in ("grid", "mitigation") if key in where for label in _listed(where[key])]
    return cell.grid in named or str(cell.labels.get("mitigation")) in {GOLDEN, AVERAGING_LIMIT} & set(named)


def _any_of(label: Any, wanted: Any) -> bool:
    return any(_same(label, one) for one in _listed(wanted))


def _listed(wanted: Any) -> tuple[Any, ...]:
    return wanted if isinstance(wanted, tuple) else (wanted,)


def _same(label: Any, wanted: Any) -> bool:
    """Labels compare as numbers where both are: 0.03 is 3.0e-2, and the label 8 is the number 8."""
    own, other = _number(label), _number(wanted)
    if own is not None and other is not None:
        return own == other
    return str(label).lower() == str(wanted).lower() if isinstance(wanted, bool) else str(label) == str(wanted)


def _number(label: Any) -> float | None:
    if isinstance(label, bool) or not isinstance(label, int | float | str):
        return None
    try:
        return float(label)
    except ValueError:
        return None


def _idle(expectation: Expectation, chosen: Sequence[Cell]) -> tuple[str, Any] | None:
    """A listed label that none of the selected cells has: what it was meant for would go unheld."""
    for key, wanted in expectation.where.items():
        for one in _listed(wanted):
            if not any(_same(label, one) for label in _labels(key, chosen)):
                return key, one
    return None


def _nearest(where: Mapping[str, Any], found: Sequence[Cell]) -> str:
    """Which label there is none of, with those that there are; or that they never stand together."""
    for key, wanted in where.items():
        known = _labels(key, found)
        for one in _listed(wanted):
            if not any(_same(label, one) for label in known):
                return f"{key} has no label {one!r}{did_you_mean(str(one), {str(label) for label in known})}"
    together = " and ".join(f"{key} {' or '.join(map(str, _listed(own)))}" for key, own in where.items())
    return f"no cell has {together} together" if together else "the sweep has golden runs only"


def _labels(key: str, found: Sequence[Cell]) -> list[Any]:
    if key == "seed":
        return [run.seed for cell in found for run in cell.runs]
    return [label for cell in found for label in _own(key, cell)]


def _check_judgeable(expectation: Expectation, cell: Cell, sweep: Sweep, place: str) -> None:
    subject, value, run = subject_of(cell), expectation.value, cell.runs[0]
    compares = expectation.measure.golden or DEGRADED in expectation.never
    if compares and sweep.golden(run) is None:
        raise Refused(f"{place}: {value} compares with golden runs, and {subject} has none (golden: false)")
    if compares and run.golden:
        raise Refused(f"{place}: {value} of {subject} compares golden runs with themselves; hold {run.judge} instead")
    if value == "gap_closed":
        _check_gap(run, sweep, f"{place}: gap_closed of {subject}")


def _check_gap(run: Run, sweep: Sweep, what: str) -> None:
    if not run.faulty:
        raise Refused(f"{what}: it has no faults, so there is no gap to close")
    ddp = sweep.ddp(run)
    if ddp is None:
        raise Refused(f"{what} compares with plain DDP under the same faults, which this sweep has not")
    if ddp is run:
        raise Refused(f"{what} compares plain DDP with itself; hold quality_lost instead")
