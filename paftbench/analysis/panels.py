"""What a figure's panel shows: one fault, the mitigations under it, its golden runs and its averaging limit."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from paftbench.analysis.cells import cells
from paftbench.analysis.runs import Run, Sweep, View, samples_of
from paftbench.analysis.stats import NO_CLAIM, claim_of
from paftbench.errors import Refused
from paftbench.looks import find_look
from paftbench.printable import printable
from paftbench.records.plan import FaultFields, ScheduleFields, SomeRanks
from paftbench.records.roles import AVERAGING_LIMIT, GOLDEN


class NothingToDraw(Refused):
    """A figure does not apply to a sweep: why, on one line."""


@dataclass(frozen=True, kw_only=True)
class Panel:
    """Finished runs by mitigation label, golden first, plain DDP next, the averaging limit last."""

    sweep: Sweep
    grid: str
    series: Mapping[str, tuple[Run, ...]]

    @property
    def lead(self) -> Run:
        """A run that has the panel's faults, if any run has."""
        runs = [run for group in self.series.values() for run in group]
        return next((run for run in runs if run.faulty), runs[-1])

    @property
    def judge(self) -> View:
        return self.lead.judge

    @property
    def metric(self) -> str:
        return plain(self.lead.found.metric.name or "metric")

    @cached_property
    def claimless(self) -> bool:
        """Fewer than 3 seeds."""
        return claim_of(len(samples_of(run for runs in self.series.values() for run in runs))) == "none"

    @property
    def workload(self) -> str:
        workload = self.lead.trial.workload
        name = plain(find_look(workload.name).title)
        size = f" {plain(workload.size)}" if "size" in workload.fields else ""
        return f"{name}{size} on {plain(workload.data)}" if workload.data else f"{name}{size}"

    @property
    def fault(self) -> str:
        """The faults in words: `bit flip 0.01 per element, burst, 1 random rank`."""
        return self._faults(degree=True)

    @property
    def kind(self) -> str:
        """The faults without their degrees."""
        return self._faults(degree=False)

    @property
    def degree(self) -> str:
        """The degrees alone: `0.01 per element`."""
        return " + ".join(_degree_text(fault) for fault in self.lead.trial.faults)

    def _faults(self, degree: bool) -> str:
        trial = self.lead.trial
        return " + ".join(fault_text(fault, trial.steps, degree) for fault in trial.faults) or "no faults"

    @property
    def title(self) -> str:
        return f"{self.workload}: {self.fault}{self.caveat}"

    @property
    def caveat(self) -> str:
        """What too few seeds must say."""
        return f" ({NO_CLAIM})" if self.claimless else ""


def panels(sweep: Sweep) -> list[Panel]:
    """A panel per fault cell with a finished run; where there are no others, one for the golden runs."""
    groups: dict[tuple[Any, ...], dict[str, list[Run]]] = {}
    for cell in cells(sweep):
        for run in cell.done:
            if not run.golden:
                groups.setdefault((cell.grid, cell.fault, run.setting), {}).setdefault(run.mitigation, []).append(run)
    found = []
    for (grid, _, _), series in groups.items():
        runs = [run for group in series.values() for run in group]
        seeds = {run.seed for run in runs}
        golden = [run for run in sweep.goldens(runs[0]) if run.seed in seeds and run.result is not None]
        samples = {run.sample for run in runs}
        limit = [run for run in sweep.limits(runs[0]) if run.sample in samples and run.result is not None]
        ordered = {GOLDEN: golden, **{name: group for name, group in series.items() if name != AVERAGING_LIMIT}}
        ordered[AVERAGING_LIMIT] = limit or series.get(AVERAGING_LIMIT, [])
        found.append(Panel(sweep=sweep, grid=grid, series=_filled(ordered)))
    if found:
        return found
    golden_runs: dict[str, list[Run]] = {}
    for run in sweep.selected:
        if run.result is not None:
            golden_runs.setdefault(run.setting, []).append(run)
    return [Panel(sweep=sweep, grid=GOLDEN, series={GOLDEN: tuple(runs)}) for runs in golden_runs.values()]


def stack_of(run: Run) -> tuple[str, ...]:
    """The names of a run's mitigations, in the order in which they act."""
    return tuple(mitigation.name for mitigation in run.trial.mitigations)


def by_model(run: Run) -> tuple[float, str]:
    """A key for the order of fault models, by the looks of the first."""
    model = next((fault.model for fault in run.trial.faults), "")
    return find_look(model).order, model


def hardest(found: Sequence[Panel]) -> list[Panel]:
    """The last panel, thus the largest degree, of each grid and workload; faults of single elements last."""
    last = {(panel.workload, panel.grid): panel for panel in found}
    order = {panel.workload: i for i, panel in reversed(list(enumerate(found)))}
    return sorted(last.values(), key=lambda panel: (order[panel.workload], "per " in panel.degree))


def plain(text: object) -> str:
    """A name as a figure shows it: what only a formula or a terminal would understand is written out."""
    return printable(str(text)).replace("$", r"\$")


def _filled(series: Mapping[str, Sequence[Run]]) -> dict[str, tuple[Run, ...]]:
    return {name: tuple(sorted(runs, key=lambda run: run.sample)) for name, runs in series.items() if runs}


def fault_text(fault: FaultFields, steps: int, degree: bool = True) -> str:
    """A fault in words; without its degree for a figure in which the degree rises."""
    text = plain(find_look(fault.model).title).replace("_", " ")
    if degree:
        text += f" {_degree_text(fault)}"
    schedule, ranks = fault.schedule or "every_step", "all" if fault.ranks is None else fault.ranks
    if schedule != "every_step":
        text += f", {_schedule_text(schedule, steps)}"
    if isinstance(ranks, SomeRanks):
        text += f" on {ranks.random} random rank" + ("" if ranks.random == 1 else "s")
    elif ranks != "all":
        text += f" on rank {', '.join(map(str, ranks))}"
    return text


def _degree_text(fault: FaultFields) -> str:
    number, unit = f"{fault.degree or 0:g}", plain(fault.unit or "").replace("_", " ")
    return f"{number} {unit}" if unit.startswith("per ") else f"{unit} {number}"


def _schedule_text(schedule: ScheduleFields | str, steps: int) -> str:
    if isinstance(schedule, str):
        return plain(schedule)
    if schedule.kind == "probability" and schedule.p is not None:
        return f"at {100 * schedule.p:g} % of steps"
    if schedule.kind != "burst" or schedule.every is None:
        return plain(schedule.kind)
    first, length = (schedule.offset - 1) % schedule.every, schedule.length
    if first + schedule.every < steps:
        return f"burst every {schedule.every} steps"
    return f"once at step {first}" if length == 1 else f"once at steps {first} to {first + length - 1}"
