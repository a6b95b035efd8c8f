"""One fault at rising degrees: what the degree-quality figure shows, and what ties degrees to field data."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from math import isfinite, isnan, log10
from statistics import median
from typing import Literal

from paftbench.analysis.cells import Cell, cells
from paftbench.analysis.panels import NothingToDraw, Panel, by_model, fault_text, plain
from paftbench.analysis.runs import Run, Sweep
from paftbench.records.plan import FaultFields
from paftbench.records.roles import AVERAGING_LIMIT, GOLDEN

DEGREE = ".degree"
# The worst gradient noise-to-signal ratio of 15 faulty servers was 5.1 % (Ma et al. 2025,
# "Understanding Silent Data Corruption in LLM Training", https://arxiv.org/html/2502.12340v1).
FIELD_NSR = 0.05


@dataclass(frozen=True, kw_only=True)
class RealisedDegree:
    """The noise-to-signal ratio that plain DDP met at each degree: median over seeds, NaN where it was not measured.

    `of` is the median step's, or the worst step's for faults that leave most steps alone.
    """

    of: str
    values: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class Ladder:
    """The runs of one grid and workload by mitigation and degree; `axis` is the field axis that the degree is."""

    panel: Panel
    axis: str
    runs: Mapping[tuple[str, float], tuple[Run, ...]]

    @cached_property
    def degrees(self) -> tuple[float, ...]:
        return tuple(sorted({degree for _, degree in self.runs}))

    @property
    def names(self) -> list[str]:
        """Mitigations in the order of legends, golden left out."""
        return [name for name in self.panel.series if name != GOLDEN]

    def at(self, name: str, degree: float) -> tuple[Run, ...]:
        return self.runs.get((name, degree), ())

    @property
    def fault(self) -> FaultFields:
        """The fault whose degree rises."""
        name = self.axis.removeprefix("faults.").removesuffix(DEGREE)
        faults = self.panel.lead.trial.faults
        return next((fault for fault in faults if fault.name == name), faults[0])

    @property
    def unit(self) -> str:
        return plain(self.fault.unit or "").replace("_", " ")

    @property
    def title(self) -> str:
        """Workload, then the faults in words, the rising one without its degree."""
        lead, rising = self.panel.lead, self.fault
        faults = [fault_text(fault, lead.trial.steps, degree=fault is not rising) for fault in lead.trial.faults]
        return f"{self.panel.workload}{self.panel.caveat}\n{' + '.join(faults)}"

    @cached_property
    def realised(self) -> RealisedDegree | None:
        """None where no plain DDP run measured it."""
        plain = [
            [run for name in self.names for run in self.at(name, degree) if _plain(run)] for degree in self.degrees
        ]
        middle = [_middle(runs, "median") for runs in plain]
        if any(value != 0 and not isnan(value) for value in middle):
            return RealisedDegree(of="median step", values=tuple(middle))
        worst = [_middle(runs, "max") for runs in plain]
        return None if all(map(isnan, worst)) else RealisedDegree(of="worst step", values=tuple(worst))

    def degree_of(self, nsr: float) -> float | None:
        """The degree at which plain DDP would meet an NSR: on the line through the nearest two in logarithms.

        None where that is more than a factor of 2 beyond what was measured.
        """
        known = [
            (log10(value), log10(degree))
            for value, degree in zip(self.realised.values if self.realised else (), self.degrees, strict=False)
            if value > 0 and isfinite(value) and degree > 0
        ]
        target = log10(nsr)
        pairs = [pair for pair in pairwise(known) if pair[0][0] < pair[1][0]]
        if not pairs:
            return None
        (low, start), (high, end) = min(pairs, key=lambda pair: max(pair[0][0] - target, target - pair[1][0], 0.0))
        if not low - log10(2) <= target <= high + log10(2):
            return None
        return float(10 ** (start + (end - start) * (target - low) / (high - low)))


def ladders(sweep: Sweep) -> list[Ladder]:
    """A ladder per workload and grid that sweeps a degree; `NothingToDraw` where no grid does."""
    groups: dict[tuple[str, ...], list[Cell]] = {}
    for cell in cells(sweep):
        axis = _axis(sweep, cell)
        if axis is not None and cell.done and not cell.runs[0].golden:
            others = {key: value for key, value in cell.labels.items() if key not in (axis, "mitigation")}
            workload = cell.runs[0].workload_text
            groups.setdefault((workload, cell.grid, axis, json.dumps(others, sort_keys=True)), []).append(cell)
    if not groups:
        raise NothingToDraw("no finished trial has a fault whose degree is swept: no axis faults.NAME.degree")
    found = [_ladder(sweep, grid, axis, group) for (_, grid, axis, _), group in groups.items()]
    return sorted(found, key=lambda ladder: by_model(ladder.panel.lead))


def _axis(sweep: Sweep, cell: Cell) -> str | None:
    """The field axis that ends in `.degree`; of several the one with the most values in its grid."""
    axes = [axis for axis, value in cell.labels.items() if axis.endswith(DEGREE) and isinstance(value, int | float)]
    if len(axes) < 2:
        return axes[0] if axes else None
    here = [run.labels for run in sweep.selected if run.grid == cell.grid]
    return max(axes, key=lambda axis: len({labels.get(axis) for labels in here}))


def _ladder(sweep: Sweep, grid: str, axis: str, found: Sequence[Cell]) -> Ladder:
    runs: dict[tuple[str, float], tuple[Run, ...]] = {}
    series: dict[str, tuple[Run, ...]] = {}
    for cell in found:
        run = cell.runs[0]
        name = " ".join(part for part in (run.mitigation, *cell.apart.split()) if part != run.workload)
        runs[name, float(cell.labels[axis])] = cell.done
        series[name] = (*series.get(name, ()), *cell.done)
    seeds = {run.seed for group in series.values() for run in group}
    lead = next(iter(series.values()))[0]
    golden = tuple(run for run in sweep.goldens(lead) if run.result is not None and run.seed in seeds)
    limit = {name: series.pop(name) for name in list(series) if name == AVERAGING_LIMIT}
    panel = Panel(sweep=sweep, grid=grid, series=({GOLDEN: golden} if golden else {}) | series | limit)
    return Ladder(panel=panel, axis=axis, runs=runs)


def _plain(run: Run) -> bool:
    return not run.trial.mitigations


def _middle(runs: Sequence[Run], key: Literal["median", "max"]) -> float:
    """Median over seeds; NaN counts as larger than any number."""
    values = [value for run in runs if (value := getattr(run.found.nsr, key)) is not None]
    finite = median([float("inf") if isnan(value) else value for value in values]) if values else float("nan")
    return float(finite)
