"""Processes: the tie to a parent, and whether one that left something behind still runs."""

import ctypes
import os
import signal
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_PARENT = "PAFTBENCH_PARENT"


def die_with_parent() -> None:
    """Ask the kernel to kill this process when its parent ends (Linux; elsewhere the parent has to).

    Launchers start ranks in sessions of their own, so killing the launcher would leave them running. A parent that has
    `announced` itself may also have ended before this call, which can be seconds into a process that imports first.
    """
    parent = int(os.environ.get(_PARENT) or os.getppid())
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def announced() -> dict[str, str]:
    """What to add to the environment of children that die with this process."""
    return {_PARENT: str(os.getpid())}


def ending_of(code: int) -> str:
    """How the exit code of a process that was started here reads to people; negative ones are signals."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"


@contextmanager
def announcing() -> Iterator[None]:
    """Inside, children inherit `announced`; what this process was itself told comes back afterwards."""
    told = os.environ.get(_PARENT)
    os.environ.update(announced())
    try:
        yield
    finally:
        os.environ.pop(_PARENT)
        if told is not None:
            os.environ[_PARENT] = told


@cache
def machine() -> str:
    """Tells whether a process id means anything here: this boot and this space of process ids, no host name."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return uuid.uuid4().hex


def has_ended(pid: int) -> bool:
    """Whether no process of this machine has the id."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return False
