"""Trials that did not write their own result: crashed, hung, or an error of ours or the machine's."""

import errno
import os
import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paftbench.engines.local import SERVER_LOST
from paftbench.process import FULL_DISK, ending_of
from paftbench.store import INJECTIONS, LOG, STEPS, read_failure, read_lines

HANG_FLOOR_S = 60.0
HANG_FACTOR = 20.0
_MEMORY = ("out of memory", "OutOfMemoryError", "MemoryError", "can't allocate memory")
_FULL = os.strerror(errno.ENOSPC)
_TAIL = 1 << 14  # bytes of a log in which torchrun's closing words stand
_ROOT_CAUSE = re.compile(r"Root Cause.*?^ *rank *: (?P<rank>\d+).*?^ *exitcode *: -(?P<signal>\d+) ", re.S | re.M)


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """An outcome that the trial's process could not write."""

    outcome: str
    reason: str
    strikes: dict[str, int]


class Watch:
    """The clock of one running trial: the whole of it, and the time since its last step.

    `golden` is the result of its golden run, if there is one; before the first step, a start as long as the whole
    golden run is allowed.
    """

    def __init__(self, directory: Path, timeout_s: float, golden: dict[str, Any] | None) -> None:
        self.started = time.time()
        self._steps = directory / STEPS
        self._timeout_s = timeout_s
        times = (golden or {}).get("time") or {}
        slowest, total = times.get("step_max_s"), times.get("total_s")
        self._limit_s = None if slowest is None else max(HANG_FLOOR_S, HANG_FACTOR * slowest)
        self._start_s = None if self._limit_s is None else max(self._limit_s, total or 0.0)
        self._seen = self._stamp()
        self._stepped = False
        self._begin = self._last = time.monotonic()

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self._begin

    def hung(self) -> str | None:
        """Why the trial counts as hung, `None` while it does not."""
        now, seen = time.monotonic(), self._stamp()
        if seen != self._seen:
            self._seen, self._stepped, self._last = seen, True, now
        limit = self._limit_s if self._stepped else self._start_s
        if limit is not None and now - self._last > limit:
            return f"no step for {limit:.0f} s, the limit by the golden run's slowest step"
        if now - self._begin > self._timeout_s:
            return f"not finished after timeout_s = {self._timeout_s:g}"
        return None

    def _stamp(self) -> tuple[int, int] | None:
        """Size and time of the step log, which a trial touches between writes."""
        try:
            stat = self._steps.stat()
        except FileNotFoundError:
            return None
        return stat.st_size, stat.st_mtime_ns


def verdict_of(directory: Path, code: int, since: float) -> Verdict:
    """What a trial that ended without a result was: crashed after a strike, else an error.

    `since` is when it started: older logs belong to an interrupted run. `OSError` where the disk is full, which is
    no verdict on the trial.
    """
    failure = read_failure(directory) or {}
    reason = str(failure.get("reason") or f"{_ending(directory, code)}, no result; see log.txt")
    if code == FULL_DISK or _FULL in reason:
        raise OSError(errno.ENOSPC, _FULL, str(directory))
    strikes = strikes_in(directory, since)
    # What the trial itself says counts first: it leaves strikes out where the fault is ours.
    struck = int(failure.get("strikes", max(strikes.values(), default=0)))
    memory = any(text.lower() in reason.lower() for text in _MEMORY)
    outcome = "crashed" if struck and not memory and code != SERVER_LOST else "error"
    return Verdict(outcome=outcome, reason=reason, strikes=strikes or {"drawn": struck, "landed": struck})


def _ending(directory: Path, code: int) -> str:
    """How a trial that says nothing itself came to its end."""
    if code == SERVER_LOST:
        return "ended with the server that trials are forked from"
    return _killed_rank(directory) or ending_of(code)


def _killed_rank(directory: Path) -> str | None:
    """The rank that a signal ended first, as torchrun's closing words in the log have it."""
    log = directory / LOG
    tail = log.read_bytes()[-_TAIL:].decode(errors="replace") if log.is_file() else ""
    found = _ROOT_CAUSE.search(tail)
    return f"rank {found['rank']} {ending_of(-int(found['signal']))}" if found else None


def strikes_in(directory: Path, since: float) -> dict[str, int]:
    """Strikes that the logs of a trial show: drawn by its steps, landed by its injections."""
    counts = {}
    if _fresh(directory / STEPS, since):
        counts["drawn"] = sum(int(row.get("strikes") or 0) for row in read_lines(directory / STEPS))
    if _fresh(directory / INJECTIONS, since):
        rows = (row for row in read_lines(directory / INJECTIONS) if row.get("landed"))
        counts["landed"] = sum(1 if row.get("index") is not None else int(row.get("elements") or 1) for row in rows)
    return counts


def _fresh(path: Path, since: float) -> bool:
    # One second of slack: file systems round their times.
    return path.is_file() and path.stat().st_mtime >= since - 1.0
