"""Trials that did not write their own result: crashed, hung, or an error of ours or the machine's."""

import errno
import os
import re
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from paftbench.process import ending_of
from paftbench.records.result import StrikeCounts
from paftbench.store.directory import INJECTIONS, LOG, STEPS, read_failure, read_lines
from paftbench.sweep.engines.engine import SERVER_LOST, Ending

_VMSTAT = Path("/proc/vmstat")
_NO_WORD = ", no result; see log.txt"
DISK_FULL = "disk full"  # the part to blame of a failure that was written beforehand
_TAIL = 1 << 14  # bytes of a log in which torchrun's closing words stand
_ROOT_CAUSE = re.compile(r"Root Cause.*?^ *rank *: (?P<rank>\d+).*?^ *exitcode *: -(?P<signal>\d+) ", re.S | re.M)

Stamp = tuple[int, int, int]


@dataclass(frozen=True, kw_only=True)
class Postmortem:
    """An outcome that the trial's process could not write."""

    outcome: str
    reason: str
    strikes: StrikeCounts


@dataclass(frozen=True, kw_only=True)
class Overdue:
    """Why a trial was not waited for any longer: it hangs, or never came to its first step, which is an error."""

    outcome: Literal["hung", "error"]
    reason: str


@dataclass(frozen=True, kw_only=True)
class Before:
    """What there was when a trial started: rows of an interrupted run, and processes killed for want of memory.

    No clock is asked.
    """

    stamps: tuple[Stamp | None, Stamp | None] = (None, None)
    memory_kills: int | None = None

    @classmethod
    def of(cls, directory: Path) -> "Before":
        stamps = stamp_of(directory / STEPS), stamp_of(directory / INJECTIONS)
        return cls(stamps=stamps, memory_kills=memory_kills())


def memory_kills() -> int | None:
    """How many processes Linux has killed since it booted because memory was short; None where it does not say."""
    try:
        rows = dict(line.split() for line in _VMSTAT.read_text().splitlines())
        return int(rows["oom_kill"])
    except (OSError, ValueError, KeyError):
        return None


def stamp_of(path: Path) -> Stamp | None:
    """Tells one state of a file from the next; None while there is none."""
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_ino, stat.st_size, stat.st_mtime_ns


def postmortem_of(directory: Path, ending: Ending | Overdue, before: Before) -> Postmortem:
    """What a trial that ended without a result was: hung, crashed after a strike, else an error.

    `OSError` where the disk is full, which is no verdict on the trial.
    """
    strikes, unreadable = StrikeCounts(), ""
    try:
        strikes = strikes_in(directory, before)
    except (OSError, ValueError) as error:
        unreadable = f"its rows cannot be read: {error}"
    if isinstance(ending, Overdue):
        outcome, reason = str(ending.outcome), ending.reason
    else:
        outcome, reason, strikes = _ended(directory, ending, strikes)
        if signal.SIGKILL.name in reason and before.memory_kills not in (None, memory_kills()):
            outcome, reason = "error", f"{reason}; meanwhile memory was short, and the kernel killed processes for it"
    if unreadable:
        outcome, reason = "error", f"{reason}; {unreadable}"
    return Postmortem(outcome=outcome, reason=reason, strikes=strikes)


def _ended(directory: Path, ending: Ending, strikes: StrikeCounts) -> tuple[str, str, StrikeCounts]:
    """Outcome and reason of a trial that ended by itself, and its strikes: what it says where its logs say nothing."""
    if ending == SERVER_LOST:
        return "error", f"ended with the server that trials are forked from{_NO_WORD}", strikes
    failure = read_failure(directory)
    if failure.part == DISK_FULL:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(directory))
    struck = max(failure.strikes, strikes.drawn or 0, strikes.landed or 0)
    if strikes == StrikeCounts():
        strikes = StrikeCounts(drawn=struck, landed=struck)
    if killed := _killed_rank(directory):
        # What the other ranks say then is only that it is gone.
        return "crashed" if struck else "error", f"{killed}{_NO_WORD}", strikes
    ours = failure.part is not None
    reason = failure.reason or f"{ending_of(ending)}{_NO_WORD}"
    return "crashed" if struck and not ours else "error", reason, strikes


def _killed_rank(directory: Path) -> str | None:
    """The rank that a signal ended first, as torchrun's closing words in the log have it."""
    log = directory / LOG
    tail = log.read_bytes()[-_TAIL:].decode(errors="replace") if log.is_file() else ""
    found = _ROOT_CAUSE.search(tail)
    return f"rank {found['rank']} {ending_of(-int(found['signal']))}" if found else None


def strikes_in(directory: Path, before: Before) -> StrikeCounts:
    """Strikes that the logs of a trial show since it started: drawn by its steps, landed by its injections."""
    drawn, landed = None, None
    steps, injections = directory / STEPS, directory / INJECTIONS
    if stamp_of(steps) not in (None, before.stamps[0]):
        drawn = sum(int(row.get("strikes") or 0) for row in read_lines(steps))
    if stamp_of(injections) not in (None, before.stamps[1]):
        rows = (row for row in read_lines(injections) if row.get("landed"))
        landed = sum(1 if row.get("index") is not None else int(row.get("elements") or 1) for row in rows)
    return StrikeCounts(drawn=drawn, landed=landed)
