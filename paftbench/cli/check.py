"""`paftbench check`: the convergence gate. It runs what is missing, then judges."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from paftbench.cli import sweeping
from paftbench.cli.check_runs import run_missing, warn_of_older, with_plugin_files
from paftbench.cli.options import PluginFiles, check_target, load_plugins, message, say
from paftbench.errors import Missing, Refused

if TYPE_CHECKING:
    from paftbench.analysis.runs import Sweep
    from paftbench.gate.baseline import Baseline
    from paftbench.gate.finding import Finding, Gate

ModeFlag = Literal["bound", "exact"]  # how a baseline is compared: within bounds over seeds, or bit by bit
BaselineFile = Annotated[Path | None, typer.Option("--baseline", metavar="FILE", help="Compare with this file, too.")]
Mode = Annotated[ModeFlag, typer.Option("--mode", help="How the baseline is compared.")]
Update = Annotated[bool, typer.Option("--update", help="Write the baseline from this run instead.")]
JunitFile = Annotated[Path | None, typer.Option("--junit", metavar="FILE", help="Findings as JUnit XML.")]
JsonFile = Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Findings as JSON.")]
MarkdownFile = Annotated[Path | None, typer.Option("--markdown", metavar="FILE", help="Findings for a pull request.")]
NoRun = Annotated[bool, typer.Option("--no-run", help="Judge what is there, run nothing.")]
FEWEST = 3  # seeds below which nothing is claimed


@dataclass(frozen=True, kw_only=True)
class Files:
    """What `check` reads and writes."""

    baseline: Path | None
    update: bool
    junit: Path | None
    json: Path | None
    markdown: Path | None

    def check(self) -> None:
        """One line where something cannot be written, before anything runs."""
        written = {"--junit": self.junit, "--json": self.json, "--markdown": self.markdown}
        for flag, path in {**written, **({"--baseline": self.baseline} if self.update else {})}.items():
            if path is not None:
                check_target(path, flag)


def check(
    experiment: sweeping.ExperimentName,
    overrides: sweeping.Overrides = None,
    baseline: BaselineFile = None,
    mode: Mode = "bound",
    update: Update = False,
    junit: JunitFile = None,
    json: JsonFile = None,
    markdown: MarkdownFile = None,
    no_run: NoRun = False,
    jobs: sweeping.Jobs = None,
    out: sweeping.Out = sweeping.OUT,
    placement: sweeping.PlacementField = None,
    procs: sweeping.ProcsField = None,
    device: sweeping.DeviceField = None,
    retry_errors: sweeping.RetryErrors = False,
    force: sweeping.Force = False,
    plugin: PluginFiles = None,
) -> int:
    """Hold an experiment to what it expects, and to a baseline: 0 pass, 1 fail or error, 3 inconclusive."""
    from paftbench.experiment import load, plan
    from paftbench.gate.judging import sweep_of
    from paftbench.gate.selecting import select
    from paftbench.sweep.sweep import Policy

    files = Files(baseline=baseline, update=update, junit=junit, json=json, markdown=markdown)
    files.check()
    asked = load(experiment)
    _check_asked(files, mode, experiment, bool(asked.expect))
    given = [*(overrides or []), *sweeping.fields(placement, procs, device)]
    command = shlex.join(["paftbench", "check", experiment, *given, *_with_plugins(plugin)])
    planned = with_plugin_files(plan(asked, given, plugins=load_plugins(plugin)))
    root, plans = out / planned[0].experiment, [item.plan() for item in planned]
    nothing = sweep_of(root, plans, {})
    selected = select(asked.expect, nothing, asked.source)
    against = _baseline(files, mode, nothing, command)
    policy = Policy(force=force, retry_errors=retry_errors, rerun_stale=True)
    # Made before anything runs: a count of processes that cannot be is refused first.
    local = sweeping.chosen_engine(jobs)
    kept = planned if no_run else run_missing(root, planned, policy, local)
    records = sweeping.records_of(root, planned)
    warn_of_older(kept, records, command)
    done = sweep_of(root, plans, {id: known.result for id, known in records.items() if known and known.result})
    gate = _judged(done, selected, against, files, mode, command)
    return _told(gate, files)


def _check_asked(files: Files, mode: ModeFlag, experiment: str, expects: bool) -> None:
    """`ValueError` for flags that say nothing together."""
    if files.baseline is None and (files.update or mode == "exact"):
        flag = "--update" if files.update else "--mode exact"
        raise Refused(f"{flag} is about a baseline: say which file with --baseline FILE")
    if files.baseline is None and not expects:
        raise Refused(f"{experiment} has no `expect`, and no --baseline FILE is given: there is nothing to check")


def _baseline(files: Files, mode: ModeFlag, sweep: "Sweep", command: str) -> "Baseline | None":
    """The baseline to compare with, checked to be one of this sweep; None without one, and where it is written."""
    from paftbench.gate.baseline import check_fits, read
    from paftbench.gate.bound import check_margin

    if files.baseline is None:
        return None
    if mode == "bound":
        check_margin(float(sweep.selected[0].planned.tolerance), sweep.selected[0].planned.experiment)
    again = f"{command} --baseline {shlex.quote(str(files.baseline))} --update"
    if files.update:
        seeds = min(len({run.sample for run in sweep.selected if run.grid == grid}) for grid in _grids(sweep))
        if seeds < FEWEST and mode == "bound":
            raise Refused(
                f"a baseline of {seeds} seeds could never pass: bounds are claims, which need {FEWEST}; "
                f"add seeds={FEWEST} or more, or say --mode exact"
            )
        return None
    if not files.baseline.is_file():
        raise Missing(f"there is no baseline {files.baseline}; make it with: {again}")
    baseline = read(files.baseline)
    check_fits(baseline, sweep, again)
    return baseline


def _judged(
    sweep: "Sweep", selected: Sequence[Any], baseline: "Baseline | None", files: Files, mode: ModeFlag, command: str
) -> "Gate":
    from paftbench.gate.finding import Gate
    from paftbench.gate.judging import judged
    from paftbench.gate.origin import environment_of

    margin = float(sweep.selected[0].planned.tolerance)
    findings = judged(sweep, selected, baseline, mode, margin)
    path = files.baseline
    if files.update and path is not None:
        findings.append(_updated(sweep, path, findings, mode))
    flags = f" --baseline {shlex.quote(str(path))}{f' --mode {mode}' if mode == 'exact' else ''}" if path else ""
    return Gate(
        experiment=sweep.selected[0].planned.experiment,
        command=f"{command}{flags}{' --update' if files.update else ''}",
        findings=tuple(findings),
        trials=len(sweep.selected),
        mode=mode if path else "expect",
        baseline=str(path) if path else None,
        environment=environment_of(sweep),
    )


def _updated(sweep: "Sweep", path: Path, findings: Sequence["Finding"], mode: ModeFlag) -> "Finding":
    """Write the baseline, unless a trial is missing or has failed to train."""
    from paftbench.analysis.runs import samples_of
    from paftbench.gate.baseline import make, write
    from paftbench.gate.bound import too_fine
    from paftbench.gate.finding import Finding

    failed = any(finding.source == "trial" for finding in findings)
    if not failed:
        write(path, make(sweep))
        if mode == "bound":
            for line in too_fine(sweep, float(sweep.selected[0].planned.tolerance)):
                message(f"paftbench: warning: {line}")
    return Finding(
        subject="all trials",
        value="baseline",
        source="baseline",
        verdict="fail" if failed else "pass",
        seeds=len(samples_of(sweep.selected)),
        reason=f"{path} is not written: a trial failed" if failed else f"written to {path}; review its diff",
    )


def _told(gate: "Gate", files: Files) -> int:
    """The table on stdout, the other forms in their files; the exit code."""
    from paftbench.gate import as_json, junit, markdown, table
    from paftbench.store.files import write_json, write_text

    if files.json is not None:
        write_json(files.json, as_json.content(gate))
    if files.junit is not None:
        write_text(files.junit, junit.render(gate))
    if files.markdown is not None:
        write_text(files.markdown, markdown.render(gate))
    say(table.render(gate))
    return gate.exit_code


def _with_plugins(plugins: Sequence[Path] | None) -> list[str]:
    return [part for path in plugins or () for part in ("--plugin", str(path))]


def _grids(sweep: "Sweep") -> set[str]:
    return {run.grid for run in sweep.selected}
