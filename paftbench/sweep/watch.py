"""The clock of one running trial: the whole of it, and the time since its last step."""

import time
from pathlib import Path

from paftbench.records.result import Time
from paftbench.store.directory import STEPS
from paftbench.sweep.postmortem import Before, Overdue, stamp_of

HANG_FLOOR_S = 60.0
HANG_FACTOR = 20.0
_PAUSE_S = 2.0  # between two looks, at most: who was away for longer was stopped, and the trial perhaps with it


class Watch:
    """Watches one trial, asked again and again.

    `golden` is how long its golden run took, if there is one; before the first step, a start as long as the whole
    golden run is allowed.
    """

    def __init__(self, directory: Path, timeout_s: float, golden: Time | None) -> None:
        self.before = Before.of(directory)
        self._steps = directory / STEPS
        self._timeout_s = timeout_s
        times = golden or Time()
        self._limit_s = None if times.step_max_s is None else max(HANG_FLOOR_S, HANG_FACTOR * times.step_max_s)
        self._start_s = None if self._limit_s is None else max(self._limit_s, times.total_s or 0.0)
        self._seen = stamp_of(self._steps)
        self._began = self._stepped = False
        self._looked = time.monotonic()
        self.elapsed_s = self._last = 0.0

    def overdue(self) -> Overdue | None:
        """Why the trial has taken too long, `None` while it has not."""
        now, seen = time.monotonic(), stamp_of(self._steps)
        self.elapsed_s += min(now - self._looked, _PAUSE_S)
        self._looked = now
        if seen is not None and seen != self._seen:
            self._seen, self._began, self._last = seen, True, self.elapsed_s
            self._stepped |= seen[1] > 0
        limit = self._limit_s if self._began else self._start_s
        if limit is not None and self.elapsed_s - self._last > limit:
            return self._said(f"no step for {limit:.0f} s, the limit by the golden run's slowest step")
        if self.elapsed_s > self._timeout_s:
            return self._said(f"not finished after timeout_s = {self._timeout_s:g}")
        return None

    def _said(self, reason: str) -> Overdue:
        if self._stepped:
            return Overdue(outcome="hung", reason=reason)
        return Overdue(outcome="error", reason=f"{reason}, and not one step; see log.txt")
