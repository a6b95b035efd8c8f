"""What a trial's course and its machine look like in a baseline: hashes and a few numbers, never a host name."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any, Final

from paftbench.analysis.runs import Run
from paftbench.environment.machine import machine
from paftbench.records.door import plain
from paftbench.store.directory import encode_line

STEP_KEYS: Final = ("step", "loss", "lr", "grad_norm", "divergence", "inconsistency", "nsr", "strikes")
WINDOW_DIGITS: Final = 8
TAIL_SHARE: Final = 5  # the last fifth


@dataclass(frozen=True, kw_only=True)
class StepWindow:
    """The steps from one evaluation to the next, `start` to `stop` (excluded), and their hash."""

    start: int
    stop: int
    sha256: str


def windows_of(run: Run) -> list[StepWindow]:
    """A hash for the steps up to each evaluation and for what was evaluated; exact values, times left out."""
    rows = {row.step: row for row in run.steps()}
    found = []
    for start, stop, quality in _evaluations(run):
        kept = [{key: getattr(rows[step], key) for key in STEP_KEYS} for step in range(start, stop) if step in rows]
        found.append(StepWindow(start=start, stop=stop, sha256=_digest({"steps": kept, "quality": quality})))
    return found


def end_of(run: Run) -> str:
    """A hash of every rank's final weights and of the strikes."""
    return _digest({"weights": run.found.params_sha256, "strikes": plain(run.found.strikes)})


def tail_of(run: Run) -> float | None:
    """The judged quality, as the mean over the last fifth of the trained model's evaluations, at least one.

    One evaluation is at the mercy of the last few batches; a fifth of them is still the end of training, where the
    learning rate has decayed, and not its course. None where there is no evaluation, or one is not finite.
    """
    history = run.found.history
    trained = [value for step, value in zip(history.step, history.of(run.judge), strict=True) if step > 0]
    last = trained[-max(1, len(trained) // TAIL_SHARE) :]
    return sum(last) / len(last) if last and all(map(isfinite, last)) else None


def machine_of(run: Run) -> dict[str, Any]:
    """On what a run's bits hang; `machine.differs` compares two."""
    return machine(run.found.environment.fields, run.trial.device)


def _evaluations(run: Run) -> Iterator[tuple[int, int, Sequence[Any]]]:
    """(first step, step behind the last, the three qualities) of each evaluation of the trained model."""
    history, start = run.found.history, 0
    for stop, *quality in zip(history.step, history.mean_model, history.worst_rank, history.rank0, strict=True):
        yield start, stop, quality
        start = stop


def _digest(payload: Mapping[str, Any]) -> str:
    return hashlib.sha256(encode_line(payload).encode()).hexdigest()[:WINDOW_DIGITS]
