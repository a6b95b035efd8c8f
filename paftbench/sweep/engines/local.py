"""Trials on this machine: virtual ones forked from a warm server, torchrun ones as subprocesses."""

import multiprocessing
import multiprocessing.util
import os
import signal
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing import forkserver, resource_tracker
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path
from subprocess import Popen
from typing import Protocol

from paftbench.errors import Refused
from paftbench.process import announcing
from paftbench.ranks.launch import start_ranks
from paftbench.store.directory import LOG
from paftbench.sweep.engines.child import run_forked
from paftbench.sweep.engines.engine import SERVER_LOST, Ending, Setting

GRACE_S = 5.0
SOCKET_PATH = 103  # bytes that the path of a socket may have, on macOS; Linux takes 107
SOCKET_NAME = len("/pymp-12345678/listener-12345678")
SHORT = "/tmp"
TARGET = "paftbench.trial:run_trial"
ATTEMPTS = 10  # to start a trial, while its server keeps being killed
POLL_S = 0.2
PRELOAD = "paftbench.sweep.engines.preload"
_UNKNOWN = 255  # what multiprocessing gives for such a code; any process may end with it


class Running(Protocol):
    """One trial's process, or the launcher of its processes."""

    def poll(self) -> Ending | None: ...
    def terminate(self) -> None: ...
    def kill(self) -> None: ...


class Forked:
    """A virtual trial: one process forked from the server, which has imported the modules `preload` already."""

    def __init__(self, target: str, directory: Path, setting: Setting, preload: Sequence[str]) -> None:
        with _serving(preload) as context:
            self._process = _started(context, (target, directory, directory / LOG, dict(setting)))
            self._server = _server()

    def poll(self) -> Ending | None:
        code = self._process.exitcode
        return SERVER_LOST if code == _UNKNOWN and _has_exited(self._server) else code

    def terminate(self) -> None:
        self._process.terminate()

    def kill(self) -> None:
        self._process.kill()


@contextmanager
def _serving(preload: Sequence[str]) -> Iterator[ForkServerContext]:
    """Where the server may be started, which imports `preload` then.

    Ctrl-C waits: it reaches the whole terminal group, and a server that imports would die of it, with a traceback.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(preload))
    _short_sockets()
    # First, because starting the tracker lets signals through again.
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        with announcing():
            yield context
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _short_sockets() -> None:
    """Have multiprocessing put its sockets below /tmp where the temporary directory's path leaves them no room."""
    if len(os.fsencode(tempfile.gettempdir())) + SOCKET_NAME <= SOCKET_PATH:
        return
    long, tempfile.tempdir = tempfile.tempdir, SHORT
    try:
        multiprocessing.util.get_temp_dir()  # made once, and kept until this process ends
    except OSError as error:
        raise OSError(
            f"TMPDIR: the path is too long for sockets, and {SHORT} cannot be used instead ({error}): {long}"
        ) from error
    finally:
        tempfile.tempdir = long


def _server() -> int | None:
    """The id of the server's process, which multiprocessing keeps to itself."""
    return getattr(forkserver._forkserver, "_forkserver_pid", None)


def _has_exited(pid: int | None) -> bool:
    """Whether a child of this process has, reaped or not; what is on its way out is given a moment."""
    deadline = time.monotonic() + POLL_S
    while pid is not None and time.monotonic() < deadline:
        try:
            if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
                return True
        except ChildProcessError:
            return True
        time.sleep(0.01)
    return pid is None


def _started(context: ForkServerContext, arguments: tuple[str, Path, Path, dict[str, str]]) -> ForkServerProcess:
    """A forked process; another server is started where the last has just been killed, which takes a moment to show."""
    for _ in range(ATTEMPTS):
        process = context.Process(target=run_forked, args=arguments)
        with suppress(ConnectionError, EOFError):
            process.start()
            return process
        time.sleep(POLL_S)
    raise OSError(f"the server that trials are forked from ended {ATTEMPTS} times before it could start one")


def _launched(target: str, directory: Path, setting: Setting, processes: int) -> "Popen[bytes]":
    """A torchrun trial: its agent, in a session of its own."""
    with (directory / LOG).open("ab") as log:
        return start_ranks(processes, target.partition(":")[0], str(directory), log=log, **setting)


class LocalEngine:
    """`slots` processes at a time; a torchrun trial takes as many slots as it has processes, and never more than all.

    `target` is what a trial's process runs on its directory, `preload` what the server of virtual ones imports first.
    """

    nodes = 1

    def __init__(self, slots: int, target: str = TARGET, preload: str = PRELOAD) -> None:
        if slots < 1:
            raise Refused(f"jobs (processes at a time) must be >= 1, got {slots}")
        self.slots = slots
        self._target = target
        self._preload = [preload]
        self._running: dict[Path, tuple[Running, int]] = {}

    def expect(self, modules: Iterable[str]) -> None:
        self._preload = list(dict.fromkeys([*self._preload, *modules]))

    def warm(self) -> None:
        with _serving(self._preload):
            forkserver.ensure_running()

    def fits(self, processes: int) -> bool:
        return sum(slots for _, slots in self._running.values()) + min(processes, self.slots) <= self.slots

    def start(self, directory: Path, processes: int, *, torchrun: bool, setting: Setting) -> None:
        running: Running
        if torchrun:
            running = _launched(self._target, directory, setting, processes)
        else:
            running = Forked(self._target, directory, setting, self._preload)
        self._running[directory] = (running, min(processes, self.slots))

    def ended(self) -> list[tuple[Path, Ending]]:
        codes = [(directory, running.poll()) for directory, (running, _) in self._running.items()]
        ended = [(directory, code) for directory, code in codes if code is not None]
        for directory, _ in ended:
            del self._running[directory]
        return ended

    def stop(self, directories: Sequence[Path]) -> None:
        # SIGTERM first lets a launcher end its ranks.
        running = [self._running.pop(directory)[0] for directory in directories if directory in self._running]
        for process in running:
            process.terminate()
        deadline = time.monotonic() + GRACE_S
        while any(process.poll() is None for process in running) and time.monotonic() < deadline:
            time.sleep(0.02)
        for process in running:
            if process.poll() is None:
                process.kill()
        while any(process.poll() is None for process in running):
            time.sleep(0.02)
