"""Ranks as real processes under torchrun, tied to the test that started them."""

import os
import re
import signal
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest import SkipTest

from paftbench.process import ending_of
from paftbench.ranks.launch import start_ranks
from paftbench.testing.errors import RankError, RanksStuck
from paftbench.testing.rank import Task
from paftbench.testing.shipping import FAILURE, OUTCOME, PARCEL, PID, STACK, Parcel, found, leave

GRACE_S = 5.0
POLL_S = 0.05
TAIL = 30  # lines of the log in an error
LOG = "log.txt"
# torchrun's own lines: its logging, and the summary of how its processes ended.
_LAUNCHER_SPEAKS = re.compile(r"^[EW]\d{4} .*torch/distributed/elastic", re.MULTILINE)
_FRAMES = re.compile(r'^  File "(.*)", line (\d+) in (.*)$', re.MULTILINE)
_NOT_OWN = re.compile(r"^<frozen|[/\\](torch|paftbench)[/\\]")
_EXITS = re.compile(r"rank\s*: (\d+) \(local_rank: \d+\)\s*exitcode\s*: (-?\d+)")


def run_processes(task: Task, world_size: int, *, limit_s: float) -> list[Any]:
    """The outcomes of all ranks, in rank order; what they print is printed.

    `RankError` with the first rank that failed, its traceback and the end of the log; `RanksStuck` where the limit
    passed. However it ends, no process is left.
    """
    __tracebackhide__ = True
    with tempfile.TemporaryDirectory(prefix="paftbench-") as name:
        folder = Path(name)
        leave(folder / PARCEL, Parcel.of((task, limit_s)))
        with (folder / LOG).open("wb") as log:
            launcher = start_ranks(world_size, "paftbench.testing.rank_main", str(folder), log=log)
        try:
            late = _wait(launcher, limit_s)
            stands = _stands(folder, world_size) if late else ""
        finally:
            _end(launcher)
        printed = (folder / LOG).read_text(errors="replace")
        said = _LAUNCHER_SPEAKS.split(printed, maxsplit=1)[0]
        failed = _first_failure(folder, world_size, printed)
        if failed is not None:
            rank, progress, error = failed
            raise RankError(rank, world_size, progress, f"{error}\nend of what all ranks printed:\n{_tail(said)}")
        if late:
            raise RanksStuck(f"the run took longer than limit_s={limit_s:g}", stands)
        outcomes = [found(folder / f"{OUTCOME}{rank}") for rank in range(world_size)]
    if launcher.returncode != 0 or None in outcomes:
        raise RuntimeError(f"torchrun ended with {ending_of(launcher.returncode)}:\n{_tail(printed)}")
    print(said, end="")
    return outcomes


def _wait(launcher: subprocess.Popen[bytes], limit_s: float) -> bool:
    """Until the launcher ends, which it does when a rank has failed, or the limit has passed; whether it has."""
    deadline = time.monotonic() + limit_s
    while launcher.poll() is None:
        if time.monotonic() > deadline:
            return True
        time.sleep(POLL_S)
    return False


def _end(launcher: subprocess.Popen[bytes]) -> None:
    """SIGTERM, on which torchrun ends its ranks; SIGKILL after a while, on which they end themselves."""
    if launcher.poll() is None:
        launcher.terminate()
    try:
        launcher.wait(GRACE_S)
    except BaseException:
        launcher.kill()
        launcher.wait()
        raise


def _first_failure(folder: Path, world_size: int, log: str) -> tuple[int, str, str] | None:
    """The rank that failed first, how far it was, and its error; `SkipTest` where the rank skipped the test.

    A rank that died without a word comes first: what others raise then is that its connection is gone.
    """
    said = {rank: failure for rank in range(world_size) if (failure := found(folder / f"{FAILURE}{rank}"))}
    exits = {int(rank): int(code) for rank, code in _EXITS.findall(log)}
    # SIGTERM is torchrun's own, to the ranks that were left when one had failed.
    silent = [rank for rank, code in exits.items() if rank not in said and code not in (0, -signal.SIGTERM)]
    if silent:
        return silent[0], "without a word", ending_of(exits[silent[0]])
    if not said:
        return None
    # The others failed because the first was gone.
    rank = min(said, key=lambda rank: float(said[rank]["time"]))
    if said[rank]["skipped"] is not None:
        raise SkipTest(said[rank]["skipped"])
    return rank, said[rank]["progress"], f"{said[rank]['error']}\n{said[rank]['traceback'].rstrip()}"


def _stands(folder: Path, world_size: int) -> str:
    """Each rank's own word on where it is."""
    for rank in range(world_size):
        with suppress(OSError, ValueError):
            os.kill(int((folder / f"{PID}{rank}").read_text()), signal.SIGUSR1)
    time.sleep(0.5)  # for their handlers to write
    lines = []
    for rank in range(world_size):
        stack = folder / f"{STACK}{rank}"
        frames = _FRAMES.findall(stack.read_text()) if stack.exists() else []
        own = [f"{Path(file).name}:{line} in {name}" for file, line, name in frames if not _NOT_OWN.search(file)]
        lines.append(f"  rank {rank} is at {own[0] if own else 'no line of yours: it starts, or has ended'}")
    return "\n".join(lines)


def _tail(log: str) -> str:
    return "\n".join(f"  {line}" for line in log.splitlines()[-TAIL:])
