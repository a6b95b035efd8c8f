"""Second mode, exact: the same bits as the baseline, which one machine promises."""

from paftbench.analysis.cells import Cell, cells
from paftbench.analysis.runs import Run, Sweep
from paftbench.analysis.text import number
from paftbench.environment.machine import difference
from paftbench.gate.baseline import Baseline, BaselineEntry
from paftbench.gate.finding import Finding, Verdict
from paftbench.gate.rule import by_seed, listed
from paftbench.gate.selecting import subject_of
from paftbench.gate.trajectory import end_of, machine_of, windows_of
from paftbench.gate.values import broke, unharmed
from paftbench.records.outcome import BROKE_DOWN
from paftbench.records.seeds import Seed

VALUE = "baseline bits"


def compare_bits(baseline: Baseline, sweep: Sweep) -> list[Finding]:
    """A finding per cell: losses, learning rates, measurements, evaluations, final weights and strikes of every seed.

    On another machine nothing is compared: one inconclusive finding that says what differs, or was not recorded.
    """
    done = [run for run in sweep.selected if run.result is not None and run.outcome not in ("error", "crashed", "hung")]
    for run in done:
        if says := difference(baseline.machine, machine_of(run)):
            reason = f"not compared, not known to be the same machine: {says}"
            return [_finding("all trials", None, "inconclusive", reason, 0)]
    return [_compared(baseline, cell) for cell in cells(sweep)]


def _compared(baseline: Baseline, cell: Cell) -> Finding:
    differing: list[tuple[Seed, str]] = []
    unknown: list[tuple[Seed, str]] = []
    same = 0
    for run in cell.runs:
        if run.result is None or run.outcome == "error":
            unknown.append((run.sample, "has not run" if run.result is None else "ended in error"))
        elif says := _difference(baseline.entry(run), run):
            differing.append((run.sample, says))
        elif spared := unharmed(run):
            unknown.append((run.sample, spared))
        else:
            same += 1
    verdict: Verdict = "fail" if differing else "inconclusive" if unknown else "pass"
    return _finding(subject_of(cell), cell, verdict, listed(by_seed(differing or unknown)), same)


def _difference(then: BaselineEntry, run: Run) -> str:
    """Where a run first leaves the baseline; empty where it never does."""
    if then.outcome != run.outcome and {then.outcome, run.outcome} & set(BROKE_DOWN):
        return f"{broke(run)}, was {then.outcome}"
    now = windows_of(run)
    for window, sha256 in zip(now, then.windows, strict=False):
        if window.sha256 != sha256:
            return f"first differs {_steps(window.start, window.stop)}{_quality(then, run)}"
    if len(now) != len(then.windows):
        return f"has {len(now)} evaluations, had {len(then.windows)}"
    return "" if end_of(run) == then.end else "has other final weights or strikes, and the same course"


def _steps(start: int, stop: int) -> str:
    if stop == 0:
        return "before the first step"
    return f"at step {start}" if stop - start == 1 else f"in steps {start}..{stop - 1}"


def _quality(then: BaselineEntry, run: Run) -> str:
    now = run.metric(run.judge)
    return "" if now is None else f" ({run.found.metric.name} {number(now)}, tail was {number(then.quality)})"


def _finding(subject: str, cell: Cell | None, verdict: Verdict, reason: str, same: int) -> Finding:
    return Finding(
        subject=subject, value=VALUE, verdict=verdict, source="baseline", grid=cell.grid if cell else "",
        labels=dict(cell.labels) if cell else {}, number=same / len(cell.runs) if cell else None, bound="same bits",
        seeds=cell.seeds if cell else 0, reason=reason,
    )  # fmt: skip
