"""Processes that a test started: found by a mark in their environment, told apart by what they are, killed by id."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paftbench.store.directory import find_trials, read_record
from support.checkout import TESTS


@dataclass(frozen=True, kw_only=True)
class Process:
    """One row of /proc."""

    pid: int
    parent: int
    command: str


def processes_of(mark: str) -> list[Process]:
    """The live processes that were started under a mark: `PAFTBENCH_MARK` in their environment."""
    wanted, found = f"PAFTBENCH_MARK={mark}".encode(), []
    for entry in Path("/proc").iterdir():
        try:
            if not entry.name.isdigit() or wanted not in (entry / "environ").read_bytes().split(b"\0"):
                continue
            state, parent, *_ = (entry / "stat").read_text().rpartition(")")[2].split()
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
        if state != "Z":
            found.append(Process(pid=int(entry.name), parent=int(parent), command=command))
    return found


def servers(mark: str) -> list[Process]:
    """The fork server: the trials that it has forked show the same command."""
    named = [process for process in processes_of(mark) if "forkserver" in process.command]
    return [process for process in named if process.parent not in {other.pid for other in named}]


def workers(mark: str) -> list[Process]:
    """Trials forked from the server."""
    (*above,) = (process.pid for process in servers(mark))
    return [process for process in processes_of(mark) if process.parent in above]


def trackers(mark: str) -> list[Process]:
    """The tracker of shared resources that multiprocessing starts beside the server."""
    return [process for process in processes_of(mark) if "resource_tracker" in process.command]


def ranks(mark: str) -> list[Process]:
    """Ranks of a torchrun trial."""
    found = [process for process in processes_of(mark) if "paftbench.trial" in process.command]
    return [process for process in found if "paftbench.sweep.engines.agent" not in process.command]


def launchers(mark: str) -> list[Process]:
    """torchrun's own process."""
    return [process for process in processes_of(mark) if "paftbench.sweep.engines.agent" in process.command]


def kill(process: Process) -> bool:
    """SIGKILL; False where it has just ended by itself."""
    try:
        os.kill(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


class Driver:
    """A warm process from which commands start at once; see kill_driver.py."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._count = 0
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        environment = {**os.environ, "PYTHONPATH": str(TESTS), "OMP_NUM_THREADS": "1"}
        # Not as a script, which multiprocessing would run again in every child.
        code = "from support import kill_driver; kill_driver.main()"
        self._process = subprocess.Popen([sys.executable, "-c", code], env=environment, **pipes)
        assert self._read() == "ready"

    def start(self, *arguments: Any, trials: str = "fake") -> "Command":
        """Start `paftbench ARGUMENTS`; kill_driver.py has the kinds of trials."""
        self._count += 1
        mark, log = f"{self._folder}/{self._count}", self._folder / f"{self._count}.log"
        order = {"run": [str(argument) for argument in arguments], "mark": mark, "log": str(log), "trials": trials}
        return Command(driver=self, pid=int(self._ask(order)), mark=mark, log=log)

    def wait(self, pid: int) -> int:
        return int(self._ask({"wait": pid}))

    def close(self) -> None:
        assert self._process.stdin is not None
        with self._process:
            self._process.stdin.close()

    def _ask(self, order: dict[str, Any]) -> str:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        return self._read()

    def _read(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()


@dataclass(frozen=True, kw_only=True)
class Command:
    """A running `paftbench`."""

    driver: Driver
    pid: int
    mark: str
    log: Path

    def wait(self) -> int:
        """Its exit code; then nothing that it started may be left."""
        code = self.driver.wait(self.pid)
        wait_until(lambda: processes_of(self.mark) == [], 10, lambda: f"left: {processes_of(self.mark)}")
        return code

    def runs(self) -> bool:
        return Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"

    def first(self, find: Callable[[str], list[Process]]) -> Process | None:
        """A process of a kind as soon as there is one; None where the command ends before."""
        while self.runs():
            found = find(self.mark)
            if found:
                return found[0]
            time.sleep(0.02)
        return None


@contextmanager
def reader(root: Path) -> Iterator[list[int]]:
    """Read every record again and again meanwhile: each is whole, and what has once been done stays done.

    Yields the number of reads of each pass.
    """
    done: set[str] = set()
    passes: list[int] = []
    failures: list[BaseException] = []
    over = threading.Event()

    def read() -> None:
        try:
            while not over.is_set():
                records = [read_record(path) for path in (find_trials(root) if root.is_dir() else [])]
                now = {record.id for record in records if record.result is not None}
                assert done <= now, f"{done - now} had a result, and have none now"
                done.update(now)
                passes.append(len(records))
                time.sleep(0.02)
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=read)
    thread.start()
    try:
        yield passes
    finally:
        over.set()
        thread.join()
    if failures:
        raise failures[0]


def wait_until(holds: Callable[[], bool], seconds: float, otherwise: Callable[[], str] = str) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, f"waited too long; {otherwise()}"
        time.sleep(0.02)
