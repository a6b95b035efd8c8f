"""Processes: the tie to a parent, and whether one that left something behind still runs."""

import ctypes
import os
import signal
import sys
import uuid
from functools import cache
from pathlib import Path

FULL_DISK = os.EX_IOERR  # exit code of a trial that could not even write why it ended
_PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    """Ask the kernel to kill this process when its parent ends (Linux; elsewhere the parent has to).

    Launchers start ranks in sessions of their own, so killing the launcher would leave them running.
    """
    if not sys.platform.startswith("linux"):
        return
    parent = os.getppid()
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


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
