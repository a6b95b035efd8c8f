"""Listing and running the trials of an experiment: what `run` and `paper` share."""

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from paftbench.cli.options import duration, message, say
from paftbench.errors import Missing

if TYPE_CHECKING:
    from paftbench.experiment.forecast import Forecast
    from paftbench.store.directory import Planned, TrialRecord
    from paftbench.store.plans import TrialState
    from paftbench.sweep.engines.engine import Engine
    from paftbench.sweep.sweep import Execution, Policy

PlacementFlag = Literal["virtual", "torchrun"]
Device = Literal["auto", "cpu", "cuda"]
ExperimentName = Annotated[str, typer.Argument(metavar="EXPERIMENT", help="A YAML file or a shipped name.")]
Overrides = Annotated[
    list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Fields of a trial; commas sweep.")
]
PlanOnly = Annotated[bool, typer.Option("-n", "--plan", help="List the trials and write nothing.")]
Jobs = Annotated[
    int | None, typer.Option("-j", "--jobs", metavar="N", help="Processes at a time (default: one per core).")
]
Keyword = Annotated[
    str | None, typer.Option("-k", metavar="EXPR", help="Only trials whose name matches: words, and, or, not, ().")
]
Out = Annotated[Path, typer.Option("--out", metavar="DIR", help="Where results go.")]
PlacementField = Annotated[PlacementFlag | None, typer.Option("--placement", help="The field placement.")]
ProcsField = Annotated[int | None, typer.Option("--procs", metavar="P", help="The field procs.")]
DeviceField = Annotated[Device | None, typer.Option("--device", help="The field device.")]
EngineName = Annotated[str, typer.Option("--engine", metavar="local|slurm|ray", help="What places trials.")]
StopAtError = Annotated[bool, typer.Option("-x", help="Stop at the first trial that ends in error.")]
RetryErrors = Annotated[bool, typer.Option("--retry-errors", help="Run again what ended in error.")]
Force = Annotated[bool, typer.Option("--force", help="Run again what is done.")]
RerunStale = Annotated[bool, typer.Option("--rerun-stale", help="Run again what a changed plugin produced.")]
OUT = Path("results/runs")


def fields(placement: PlacementFlag | None, procs: int | None, device: Device | None) -> list[str]:
    """The flags that are shorthand for fields of a trial, as overrides."""
    given = {"placement": placement, "procs": procs, "device": device}
    return [f"{key}={value}" for key, value in given.items() if value is not None]


def matching(everything: Sequence["Planned"], keyword: str | None) -> list["Planned"]:
    """The trials that `-k` selects, with the golden runs they are judged by; maybe none."""
    from paftbench.experiment.selection import parse_selection
    from paftbench.store.plans import with_goldens

    if keyword is None:
        return list(everything)
    matches = parse_selection(keyword)
    return with_goldens([item for item in everything if matches(item.name)], everything)


def this_machine(slots: int) -> "Engine":
    from paftbench.sweep.engines.local import LocalEngine

    engine = LocalEngine(slots)
    # multiprocessing runs this process's main script again in each trial, which costs nothing where this is imported.
    engine.expect(["paftbench.cli.main"])
    return engine


LOCAL = "local"
ENGINES: dict[str, Callable[[int], "Engine"] | None] = {LOCAL: this_machine, "slurm": None, "ray": None}


def chosen_engine(jobs: int | None, name: str = LOCAL) -> "Engine":
    """The engine called `name`, with a process per core where the user says no number; `LookupError` where none is."""
    from paftbench.suggest import did_you_mean

    if name not in ENGINES:
        raise Missing(f"--engine (what places trials): no engine {name!r}{did_you_mean(name, ENGINES)}")
    made = ENGINES[name]
    if made is None:
        there = ", ".join(known for known, of in ENGINES.items() if of)
        raise Missing(f"--engine (what places trials): {name} is not installed; this version has {there}")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return made(cores if jobs is None else jobs)


@dataclass(frozen=True, kw_only=True)
class Listed:
    """A planned trial, what is known of it, whether it is to run, and how long that is expected to take."""

    planned: "Planned"
    state: "TrialState"
    runs: bool
    seconds: float | None

    COLUMNS = ("id", "name", "state", "strikes", "seconds")

    def row(self) -> tuple[str, ...]:
        from paftbench.experiment.strikes import strikes_of

        predicted = "-" if self.seconds is None else f"{self.seconds:.1f}"
        expected = strikes_of(self.planned.trial)
        strikes = f"{'' if expected.exact else '~'}{expected.count:.4g}"
        return self.planned.id, self.planned.name, self.state, strikes, predicted


def records_of(root: Path, planned: Iterable["Planned"]) -> dict[str, "TrialRecord | None"]:
    """What a sweep directory holds of each planned trial, by id."""
    from paftbench.store.plans import known_record

    return {item.id: known_record(root / item.id, item) for item in planned}


def listed(
    planned: Sequence["Planned"], records: dict[str, "TrialRecord | None"], policy: "Policy", forecast: "Forecast"
) -> list[Listed]:
    """A line of the plan for each trial."""
    from paftbench.store.plans import state_of

    lines = []
    for item in planned:
        state = state_of(records[item.id], item)
        seconds = forecast.seconds(item.trial)
        lines.append(Listed(planned=item, state=state, runs=policy.runs(state), seconds=seconds))
    return lines


def warn(planned: Iterable["Planned"]) -> None:
    """What is legal and probably not meant, on stderr."""
    from paftbench.experiment.forecast import warnings_of

    for line in warnings_of(planned):
        message(f"paftbench: warning: {line}")


def total(todo: Sequence[Listed], jobs: int) -> str:
    """What running trials takes with `jobs` processes at a time."""
    if not todo:
        return "0 trials to run"
    text = f"{len(todo)} {'trial' if len(todo) == 1 else 'trials'} to run"
    seconds = seconds_of(todo, jobs)
    if seconds is None:
        return f"{text}; no time is predicted before one of the kind has finished"
    unknown = sum(line.seconds is None for line in todo)
    more = f", without {unknown} of kinds that have not finished yet" if unknown else ""
    return f"{text}, about {duration(seconds)} with -j {jobs}{more}"


def seconds_of(todo: Iterable[Listed], jobs: int) -> float | None:
    """Seconds of the trials whose time is predicted; `None` where none is."""
    known = [line.seconds * min(line.planned.trial.processes, jobs) for line in todo if line.seconds is not None]
    return sum(known) / jobs if known else None


def swept(root: Path, planned: Sequence["Planned"], policy: "Policy", engine: "Engine") -> int:
    """Run what is to run, then print the table and the directory; 1 where a trial ended in error."""
    from paftbench.analysis.table import render

    sweep = ran(root, planned, policy, engine)
    say(render(root))
    say(root)
    tell_errors(sweep)
    return 1 if sweep.errors else 0


def ran(root: Path, planned: Sequence["Planned"], policy: "Policy", engine: "Engine") -> "Execution":
    """Run what is to run, with its progress on stderr; the sweep that did it."""
    from paftbench.cli.progress import Progress
    from paftbench.sweep.sweep import Execution

    sweep = Execution(root=root, planned=planned, engine=engine, policy=policy)
    sweep.prepare()
    todo = [item for item in planned if policy.runs(sweep.states[item.id])]
    warn(todo)
    message(f"{len(planned)} trials, {len(planned) - len(todo)} already done")
    stale = sum(state == "stale" for state in sweep.states.values())
    if stale and not (policy.rerun_stale or policy.force):
        message(f"{stale} of them are stale: a plugin has changed since; --rerun-stale runs them again")
    with Progress(planned, {item.id for item in todo}, engine.slots) as progress:
        sweep.report = progress.tell
        sweep.run()
    return sweep


def tell_errors(sweep: "Execution") -> None:
    """What ended in error and why, on stderr."""
    for error in sweep.errors.values():
        reason = str(error.reason).strip().splitlines()
        message(f"error: {error.planned.name}: {reason[-1] if reason else '?'}; see {error.log}")
