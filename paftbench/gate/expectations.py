"""First mode: what the experiment expects, judged against the golden runs of the same job."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from paftbench.analysis.cells import Cell
from paftbench.analysis.runs import Run, Sweep
from paftbench.analysis.stats import Summary, wilson
from paftbench.gate.finding import Finding, Verdict
from paftbench.gate.rule import Bound, Judged, by_seed, few, judge, listed
from paftbench.gate.selecting import Selected, subject_of
from paftbench.gate.values import LEARNT, NO_STRIKE, broke, sample_of, unharmed, unusable, without_golden
from paftbench.records.expectation import DEGRADED, OUTCOME, Expectation
from paftbench.records.outcome import BROKE_DOWN
from paftbench.store.directory import LOG

WILSON: Final = "95 % Wilson"


def judge_expectations(selected: Sequence[Selected], sweep: Sweep) -> list[Finding]:
    """A finding for every cell of every expectation."""
    return [
        _finding(one.expectation, one.place, _with_results(cell, sweep), sweep)
        for one in selected
        for cell in one.cells
    ]


def judge_trials(sweep: Sweep) -> list[Finding]:
    """A failure for every trial that ended in error, and for every golden run that did not learn.

    Where training fails without faults, nothing can be said of what faults do to it.
    """
    found = []
    for run in sweep.selected:
        if run.outcome == "error":
            lines = (run.found.reason or "no reason recorded").strip().splitlines()
            found.append(_failed(run, f"ended in error: {lines[-1]}; see {run.record.path / LOG}", error=True))
        elif run.golden and run.result is not None and run.outcome not in LEARNT:
            found.append(_failed(run, f"training without faults {broke(run)}", error=False))
    return found


def finding_of(judged: Judged, cell: Cell, *, value: str, source: str, bound: str) -> Finding:
    """A cell's verdict as a finding."""
    return Finding(
        subject=subject_of(cell), value=value, verdict=judged.verdict, source=source, grid=cell.grid,
        labels=dict(cell.labels), number=judged.number, low=judged.summary.low, high=judged.summary.high,
        spread=judged.spread, bound=bound, seeds=cell.seeds, reason=judged.reason,
    )  # fmt: skip


def _with_results(cell: Cell, sweep: Sweep) -> Cell:
    """The cell as selected before it ran, with what has come out since."""
    own = {run.id: run for run in sweep.selected}
    return replace(cell, runs=tuple(own[run.id] for run in cell.runs))


def _finding(expectation: Expectation, place: str, cell: Cell, sweep: Sweep) -> Finding:
    if expectation.value == OUTCOME:
        never = f"never {', '.join(expectation.never)}"
        return finding_of(_outcomes(expectation.never, cell, sweep), cell, value=OUTCOME, source=place, bound=never)
    sample = sample_of(expectation.value, sweep, cell.runs)
    bound = Bound(at_least=expectation.at_least, at_most=expectation.at_most)
    return finding_of(judge(sample, bound), cell, value=expectation.value, source=place, bound=bound.text)


def _outcomes(never: Sequence[str], cell: Cell, sweep: Sweep) -> Judged:
    """The rate of the outcomes that may not occur, with its Wilson interval; one is enough to fail."""
    unrated = {run.id: why for run in cell.runs if (why := _why_unrated(run, never, sweep))}
    rated = [run for run in cell.runs if run.id not in unrated]
    hits = [run for run in rated if run.outcome in never]
    low, high = wilson(len(hits), len(rated))
    low = low if hits else 0.0  # but for rounding it is
    summary = Summary(
        mean=len(hits) / len(rated) if rated else None, low=low if rated else None, high=high if rated else None,
        points=(), claim="interval" if rated else "none",
    )  # fmt: skip
    spared = by_seed((run.sample, unrated[run.id]) for run in cell.runs if run.id in unrated)
    verdict, reason = _on_rate(hits, spared, cell)
    return Judged(verdict=verdict, reason=reason, summary=summary, spread=WILSON if rated else "")


def _on_rate(hits: Sequence[Run], unrated: Sequence[str], cell: Cell) -> tuple[Verdict, str]:
    if hits:
        return "fail", listed(by_seed((run.sample, broke(run)) for run in hits))
    if unrated:
        return "inconclusive", listed(unrated)
    if cell.seeds < 3:
        return "inconclusive", few(cell.seeds)
    return "pass", ""


def _why_unrated(run: Run, never: Sequence[str], sweep: Sweep) -> str:
    """Why a run counts in no rate of these outcomes; empty where it does."""
    absent = unusable(run)
    if absent is not None and absent.why == "unknown":
        return absent.reason
    if run.unstruck:
        return NO_STRIKE
    if run.outcome in never or run.outcome in BROKE_DOWN:
        return ""
    unknown = without_golden(sweep, run) if DEGRADED in never else None
    return unharmed(run) if unknown is None else unknown.reason


def _failed(run: Run, reason: str, *, error: bool) -> Finding:
    return Finding(
        subject=run.name, value="trial", verdict="fail", source="trial", grid=run.grid, labels=run.labels, seeds=1,
        reason=reason, is_error=error,
    )  # fmt: skip
