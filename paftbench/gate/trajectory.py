"""What a trial's course and its machine look like in a baseline: hashes and a few numbers, never a host name."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any, Final

from paftbench.analysis.runs import Run
from paftbench.environment.machine import machine
from paftbench.store.directory import encode_line

STEP_KEYS: Final = ("step", "loss", "lr", "grad_norm", "divergence", "inconsistency", "nsr", "strikes")
WINDOW_DIGITS: Final = 8
TAIL_SHARE: Final = 5  # the last fifth


@dataclass(frozen=True, kw_only=True)
class Window:
    """The steps from one evaluation to the next, `start` to `stop` (excluded), and their hash."""

    start: int
    stop: int
    sha256: str


def windows_of(run: Run) -> list[Window]:
    """A hash for the steps up to each evaluation and for what was evaluated; exact values, times left out."""
    rows = {int(row["step"]): row for row in run.steps()}
    found = []
    for start, stop, quality in _evaluations(run):
        kept = [{key: rows[step].get(key) for key in STEP_KEYS} for step in range(start, stop) if step in rows]
        found.append(Window(start=start, stop=stop, sha256=_digest({"steps": kept, "quality": quality})))
    return found


def end_of(run: Run) -> str:
    """A hash of every rank's final weights and of the strikes."""
    return _digest({"weights": run.get("params_sha256"), "strikes": run.get("strikes")})


def tail_of(run: Run) -> float | None:
    """The judged quality, as the mean over the last fifth of the trained model's evaluations, at least one.

    One evaluation is at the mercy of the last few batches; a fifth of them is still the end of training, where the
    learning rate has decayed, and not its course. None where there is no evaluation, or one is not finite.
    """
    history = run.get("history") or {}
    steps, values = history.get("step") or [], history.get(run.judge) or []
    trained = [value for step, value in zip(steps, values, strict=True) if step > 0]
    last = trained[-max(1, len(trained) // TAIL_SHARE) :]
    return sum(last) / len(last) if last and all(map(isfinite, last)) else None


def machine_of(run: Run) -> dict[str, Any]:
    """On what a run's bits hang; `machine.differs` compares two."""
    return machine(run.get("environment") or {}, run.trial.get("device"))


def _evaluations(run: Run) -> Iterator[tuple[int, int, Sequence[Any]]]:
    """(first step, step behind the last, the three qualities) of each evaluation of the trained model."""
    history: Mapping[str, Sequence[Any]] = run.get("history") or {}
    views = [history.get(view) or [] for view in ("mean_model", "worst_rank", "rank0")]
    start = 0
    for stop, *quality in zip(history.get("step") or [], *views, strict=True):
        yield start, int(stop), quality
        start = int(stop)


def _digest(payload: Mapping[str, Any]) -> str:
    return hashlib.sha256(encode_line(payload).encode()).hexdigest()[:WINDOW_DIGITS]
