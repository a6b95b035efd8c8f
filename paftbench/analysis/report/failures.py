"""Trials that ended in something else than a quality: why, and what they printed last."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite

from paftbench.analysis.runs import Run, Sweep
from paftbench.records.outcome import BROKEN
from paftbench.store.directory import LOG

LINES, BYTES = 40, 8_000


@dataclass(frozen=True, kw_only=True)
class FailedRuns:
    """`reason` as it was recorded, `log` the end of what the trial printed, from `path`."""

    name: str
    outcome: str
    reason: str
    path: str
    log: str


def failures(sweep: Sweep) -> list[FailedRuns]:
    """Errors of ours first."""
    failed = sorted((run for run in sweep.selected if run.outcome in BROKEN), key=lambda run: BROKEN.index(run.outcome))
    return [
        FailedRuns(
            name=run.name,
            outcome=run.outcome,
            reason=(run.found.reason or "").strip() or _first_nonfinite(run),
            path=f"{run.record.path.name}/{LOG}",
            log=tail(run.record.log(BYTES + 1)),
        )
        for run in failed
    ]


def tail(log: bytes) -> str:
    """The last lines of what a trial printed, with a mark where earlier ones are left out."""
    lines = log[-BYTES:].decode(errors="replace").strip().splitlines()
    cut = len(log) > BYTES or len(lines) > LINES
    return "\n".join([*(["[...]"] if cut else []), *lines[-LINES:]])


def _first_nonfinite(run: Run) -> str:
    if run.outcome != "nonfinite":
        return "no reason recorded"
    step = next((row.step for row in run.steps() if not _finite(row.loss)), None)
    if step is None:
        return "a parameter was NaN or infinite at the end, no loss was"
    return f"the first loss that was NaN or infinite is that of step {step}"


def _finite(losses: Sequence[float]) -> bool:
    return all(map(isfinite, losses))
