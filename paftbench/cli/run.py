"""`paftbench run`: an experiment's trials, those that are not done yet."""

import os
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from paftbench.cli.options import PluginFiles, columns, load_plugins, message


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
    from paftbench.experiment import load, plan
    from paftbench.experiment.forecast import warnings_of
    from paftbench.experiment.selection import parse_selection
    from paftbench.sweep import Policy, with_goldens

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
    for line in warnings_of(selected):
        message(f"paftbench: warning: {line}")
    if plan_only:
        typer.echo(listing(root, selected))
        return 0
    policy = Policy(force=force, retry_errors=retry_errors, rerun_stale=rerun_stale, stop_at_error=stop_at_error)
    return _sweep(root, selected, policy, _cores() if jobs is None else jobs)


def listing(root: Path, planned: list[Any]) -> str:
    """A line per trial: id, name, state, expected strikes, predicted seconds."""
    from paftbench.experiment.forecast import expected_strikes, predicted_seconds
    from paftbench.sweep import state_of

    seconds = predicted_seconds(root, planned)
    rows = [("id", "name", "state", "strikes", "seconds")]
    for item in planned:
        predicted = seconds.get(item.id)
        strikes = f"{expected_strikes(item.trial):.4g}"
        state = state_of(root / item.id, item)
        rows.append((item.id, item.name, state, strikes, "-" if predicted is None else f"{predicted:.1f}"))
    return columns(rows)


def _sweep(root: Path, planned: list[Any], policy: Any, jobs: int) -> int:
    from paftbench.analysis.table import render
    from paftbench.cli.progress import Progress
    from paftbench.engines.local import LocalEngine
    from paftbench.store import read_record
    from paftbench.sweep import Sweep, state_of

    sweep = Sweep(root=root, planned=planned, engine=LocalEngine(jobs), policy=policy)
    todo = sweep.prepare()
    message(f"{len(planned)} trials, {len(planned) - todo} already done")
    stale = sum(state_of(root / item.id, item) == "stale" for item in planned)
    if stale and not (policy.rerun_stale or policy.force):
        message(f"{stale} of them are stale: a plugin has changed since; --rerun-stale runs them again")
    with Progress(todo) as progress:
        sweep.report = progress.tell
        sweep.run()
    records = [read_record(root / item.id) for item in planned]
    typer.echo(render(root))
    typer.echo(root)
    errors = [record for record in records if record.result and record.result["outcome"] == "error"]
    for record in errors:
        reason = str(record.result and record.result.get("reason")).strip().splitlines()
        message(f"error: {record.planned['name']}: {reason[-1] if reason else '?'}; see {record.path / 'log.txt'}")
    return 1 if errors else 0


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
