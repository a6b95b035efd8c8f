"""`paftbench run`: an experiment's trials, those that are not done yet."""

import os
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from paftbench.cli.options import PluginFiles, columns, duration, load_plugins, message


class Placement(StrEnum):
    """How ranks are laid onto processes."""

    VIRTUAL = "virtual"
    TORCHRUN = "torchrun"


class Device(StrEnum):
    """What trials run on."""

    AUTO = "auto"
    CPU = "cpu"
    CUDA = "cuda"


class Engine(StrEnum):
    """What places trials."""

    LOCAL = "local"


def run(
    experiment: Annotated[str, typer.Argument(metavar="EXPERIMENT", help="A YAML file or a shipped name.")],
    overrides: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Fields of a trial; commas sweep.")
    ] = None,
    plan_only: Annotated[bool, typer.Option("-n", "--plan", help="List the trials and write nothing.")] = False,
    jobs: Annotated[
        int | None, typer.Option("-j", "--jobs", metavar="N", help="Processes at a time (default: one per core).")
    ] = None,
    keyword: Annotated[
        str | None, typer.Option("-k", metavar="EXPR", help="Only trials whose name matches: words, and, or, not, ().")
    ] = None,
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Where results go.")] = Path("results/runs"),
    placement: Annotated[Placement | None, typer.Option("--placement", help="The field placement.")] = None,
    procs: Annotated[int | None, typer.Option("--procs", metavar="P", help="The field procs.")] = None,
    device: Annotated[Device | None, typer.Option("--device", help="The field device.")] = None,
    engine: Annotated[Engine, typer.Option("--engine", help="What places trials.")] = Engine.LOCAL,
    stop_at_error: Annotated[bool, typer.Option("-x", help="Stop at the first trial that ends in error.")] = False,
    retry_errors: Annotated[bool, typer.Option("--retry-errors", help="Run again what ended in error.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Run again what is done.")] = False,
    rerun_stale: Annotated[
        bool, typer.Option("--rerun-stale", help="Run again what a changed plugin produced.")
    ] = False,
    plugin: PluginFiles = None,
) -> int:
    """Run an experiment; finished trials are skipped. Ends with the table and the directory."""
    from paftbench.engines.local import LocalEngine
    from paftbench.experiment import load, plan
    from paftbench.experiment.selection import parse_selection
    from paftbench.plans import with_goldens
    from paftbench.sweep import Policy

    plugins = load_plugins(plugin)
    fields = {"placement": placement, "procs": procs, "device": device}
    given = [*(overrides or []), *(f"{key}={value}" for key, value in fields.items() if value is not None)]
    everything = plan(load(experiment), given, plugins=plugins)
    selected = everything
    if keyword is not None:
        matches = parse_selection(keyword)
        selected = with_goldens([item for item in everything if matches(item.name)], everything)
        if not selected:
            raise LookupError(f"-k {keyword!r} matches none of {len(everything)} trials; list them with -n")
    root = out / everything[0].experiment
    policy = Policy(force=force, retry_errors=retry_errors, rerun_stale=rerun_stale, stop_at_error=stop_at_error)
    local = LocalEngine(_cores() if jobs is None else jobs)
    return (_list if plan_only else _sweep)(root, selected, policy, local)


def _list(root: Path, planned: list[Any], policy: Any, engine: Any) -> int:
    """A line per trial: id, name, state, expected strikes, predicted seconds; then what a run would take."""
    from paftbench.experiment.forecast import Forecast, expected_strikes, warnings_of
    from paftbench.plans import known_record, state_of

    records = {item.id: known_record(root / item.id, item) for item in planned}
    forecast = Forecast(root, records.values())
    rows, todo = [("id", "name", "state", "strikes", "seconds")], []
    for item in planned:
        state = state_of(records[item.id], item)
        seconds = forecast.seconds(item.trial)
        if policy.runs(state):
            todo.append((item.trial, seconds))
        predicted = "-" if seconds is None else f"{seconds:.1f}"
        rows.append((item.id, item.name, state, f"{expected_strikes(item.trial):.4g}", predicted))
    for line in warnings_of(planned):
        message(f"paftbench: warning: {line}")
    typer.echo(columns(rows))
    message(_total(todo, engine.slots))
    return 0


def _total(trials: list[tuple[Any, float | None]], jobs: int) -> str:
    """What running trials of predicted seconds takes with `jobs` processes at a time."""
    if not trials:
        return "0 trials to run"
    text = f"{len(trials)} {'trial' if len(trials) == 1 else 'trials'} to run"
    known = [seconds * min(trial.processes, jobs) for trial, seconds in trials if seconds is not None]
    if not known:
        return f"{text}; no time is predicted before one of the kind has finished"
    unknown = len(trials) - len(known)
    more = f", without {unknown} of kinds that have not finished yet" if unknown else ""
    return f"{text}, about {duration(sum(known) / jobs)} with -j {jobs}{more}"


def _sweep(root: Path, planned: list[Any], policy: Any, engine: Any) -> int:
    from paftbench.analysis.table import render
    from paftbench.cli.progress import Progress
    from paftbench.experiment.forecast import warnings_of
    from paftbench.sweep import Sweep

    sweep = Sweep(root=root, planned=planned, engine=engine, policy=policy)
    sweep.prepare()
    todo = [item for item in planned if policy.runs(sweep.states[item.id])]
    for line in warnings_of(todo):
        message(f"paftbench: warning: {line}")
    message(f"{len(planned)} trials, {len(planned) - len(todo)} already done")
    stale = sum(state == "stale" for state in sweep.states.values())
    if stale and not (policy.rerun_stale or policy.force):
        message(f"{stale} of them are stale: a plugin has changed since; --rerun-stale runs them again")
    with Progress(planned, {item.id for item in todo}, engine.slots) as progress:
        sweep.report = progress.tell
        sweep.run()
    typer.echo(render(root))
    typer.echo(root)
    for error in sweep.errors.values():
        reason = str(error.reason).strip().splitlines()
        message(f"error: {error.planned.name}: {reason[-1] if reason else '?'}; see {error.log}")
    return 1 if sweep.errors else 0


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
