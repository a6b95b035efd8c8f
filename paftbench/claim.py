"""Who runs a trial: an exclusive file beside its directory, kept fresh by a heartbeat.

Two sweeps may share a directory, also from two machines. A claim whose heartbeat stopped is taken over.
"""

import json
import os
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from paftbench.files import read_json
from paftbench.process import has_ended, machine

HEARTBEAT_S = 5.0
STALE_S = 30.0


class Claim:
    """A trial directory held by this process until `release`."""

    def __init__(self, path: Path, token: str) -> None:
        self._path = path
        self._token = token
        self._released = threading.Event()
        self._beat = threading.Thread(target=self._keep_fresh, name=f"claim {path.name}", daemon=True)
        self._beat.start()

    def _keep_fresh(self) -> None:
        while not self._released.wait(HEARTBEAT_S):
            if _read(self._path).get("token") != self._token:
                return
            with suppress(FileNotFoundError):
                os.utime(self._path)

    def release(self) -> None:
        """Give the trial free; nothing happens where another process took it over."""
        self._released.set()
        self._beat.join()
        if _read(self._path).get("token") == self._token:
            self._path.unlink(missing_ok=True)


def try_claim(directory: Path) -> Claim | None:
    """The claim of a trial directory, or `None` while another process holds it."""
    path = claim_path(directory)
    token = uuid.uuid4().hex
    content = json.dumps({"token": token, "pid": os.getpid(), "machine": machine()})
    if _create(path, content):
        return Claim(path, token)
    if not _abandoned(path):
        return None
    takeover = path.with_suffix(".takeover")
    if not _create(takeover, content):
        if _abandoned(takeover):
            takeover.unlink(missing_ok=True)
        return None
    try:
        # Looked at again: another process may have taken the claim over between the first look and the takeover file.
        if path.exists() and not _abandoned(path):
            return None
        path.unlink(missing_ok=True)
        return Claim(path, token) if _create(path, content) else None
    finally:
        takeover.unlink(missing_ok=True)


@contextmanager
def claim(directory: Path) -> Iterator[Claim]:
    """Hold a trial directory for a block; `ValueError` where another process holds it."""
    held = try_claim(directory)
    if held is None:
        raise ValueError(f"trial {directory} is being run by another process")
    try:
        yield held
    finally:
        held.release()


def is_claimed(directory: Path) -> bool:
    """Whether some live process holds the trial."""
    path = claim_path(directory)
    return path.exists() and not _abandoned(path)


def claim_path(directory: Path) -> Path:
    """The claim stands beside the directory, which need not exist yet."""
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


def _read(path: Path) -> dict[str, object]:
    try:
        return read_json(path)
    except (FileNotFoundError, ValueError):
        return {}


def _age(path: Path) -> float:
    try:
        return time.time() - path.stat().st_mtime
    except FileNotFoundError:
        return 0.0


def _abandoned(path: Path) -> bool:
    """No heartbeat for long, a holder that has ended, or one that was killed before it could write its name."""
    age = _age(path)
    if age > STALE_S:
        return True
    content = _read(path)
    pid = content.get("pid")
    if not isinstance(pid, int):
        return age > HEARTBEAT_S
    return content.get("machine") == machine() and has_ended(pid)
