"""Who runs a trial: an exclusive file beside its directory, kept fresh by a heartbeat.

Two sweeps may share a directory, also from two machines. A claim whose heartbeat stopped is taken over. Clocks are
never compared: a heartbeat has stopped when this process has seen none for long, by its own clock.
"""

import json
import os
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from paftbench.errors import Refused
from paftbench.process import has_ended, machine
from paftbench.store.lease import Lease, read_claim

HEARTBEAT_S = 5.0
STALE_S = 30.0


class HeldTrial:
    """A trial directory held by this process until `release`; `taken_over` from one that has left it unfinished."""

    def __init__(self, path: Path, token: str, *, taken_over: bool = False) -> None:
        self.lease = Lease(claim=path, token=token)
        self.taken_over = taken_over
        self.lost = False  # as the last heartbeat found it; `lease.held` looks
        self._released = threading.Event()
        self._beat = threading.Thread(target=self._keep_fresh, name=f"claim {path.name}", daemon=True)
        self._beat.start()

    def _keep_fresh(self) -> None:
        while not self._released.wait(HEARTBEAT_S):
            with suppress(OSError):  # a file system that is away for a moment
                if not self.lease.held():
                    self.lost = True
                    return
                os.utime(self.lease.claim)

    def release(self) -> None:
        """Give the trial free; nothing happens where another process took it over."""
        self._released.set()
        self._beat.join()
        if self.lease.held():
            self.lease.claim.unlink(missing_ok=True)


def try_claim(directory: Path) -> HeldTrial | None:
    """The claim of a trial directory, or `None` while another process holds it."""
    path = claim_path(directory)
    token = uuid.uuid4().hex
    content = json.dumps({"token": token, "pid": os.getpid(), "machine": machine()})
    if _create(path, content):
        return HeldTrial(path, token)
    if not _abandoned(path):
        return None
    takeover = path.with_suffix(".takeover")
    if not _create(takeover, content):
        if _abandoned(takeover):
            takeover.unlink(missing_ok=True)
        return None
    try:
        # Looked at again: another process may have taken the claim over between the first look and the takeover file.
        if not _abandoned(path):
            return None
        os.replace(takeover, path)  # at no moment is the trial free for a third, who would not know what it takes over
        return HeldTrial(path, token, taken_over=True)
    finally:
        takeover.unlink(missing_ok=True)


@contextmanager
def claim(directory: Path) -> Iterator[HeldTrial]:
    """Hold a trial directory for a block; `ValueError` where another process holds it."""
    held = try_claim(directory)
    if held is None:
        path = claim_path(directory)
        raise Refused(f"trial {directory} is being run by another process; if that has ended, delete {path}")
    try:
        yield held
    finally:
        held.release()


def is_claimed(directory: Path) -> bool:
    """Whether some live process holds the trial, as far as one look can tell."""
    path = claim_path(directory)
    return path.exists() and not _abandoned(path)


def heartbeat_age_s(directory: Path) -> float:
    """How old the last heartbeat of a claimed trial looks by this machine's clock; negative: it lies in the future."""
    try:
        return time.time() - claim_path(directory).stat().st_mtime
    except FileNotFoundError:
        return 0.0


def claim_path(directory: Path) -> Path:
    """The claim stands beside the directory, which need not exist yet."""
    directory = directory.absolute()
    return directory.parent / f".{directory.name}.claim"


def claimed_names(root: Path) -> set[str]:
    """The trials in `root` that are claimed, or were by processes that have been killed."""
    found = [path for pattern in (".*.claim", ".*.takeover") for path in root.glob(pattern)]
    return {path.stem.removeprefix(".") for path in found}


def _create(path: Path, content: str) -> bool:
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    except FileExistsError:
        return False
    try:
        os.write(descriptor, content.encode())
    except OSError:
        path.unlink(missing_ok=True)
        raise
    finally:
        os.close(descriptor)
    return True


@dataclass(kw_only=True)
class _Sight:
    """A file as this process has seen it, by its own clock: since when unchanged, and when last looked at."""

    stamp: tuple[int, int]
    since: float
    looked: float


_SEEN: dict[Path, _Sight] = {}


def _silent_s(path: Path) -> float:
    """For how long a file has not changed under the eyes of this process."""
    try:
        stat = path.stat()
    except FileNotFoundError:
        _SEEN.pop(path, None)
        return 0.0
    now, stamp, last = time.monotonic(), (stat.st_ino, stat.st_mtime_ns), _SEEN.get(path)
    # Who has not looked for a while may have been stopped, and the other with it.
    if last is None or last.stamp != stamp or now - last.looked > STALE_S:
        last = _SEEN[path] = _Sight(stamp=stamp, since=now, looked=now)
    last.looked = now
    return now - last.since


def _abandoned(path: Path) -> bool:
    """No heartbeat for long, a holder that has ended, or one that was killed before it could write its name."""
    content = read_claim(path)  # opened first, which has a network file system look for changes
    silent_s = _silent_s(path)
    pid = content.get("pid")
    if not isinstance(pid, int):
        return silent_s > HEARTBEAT_S
    return silent_s > STALE_S or (content.get("machine") == machine() and has_ended(pid))
