"""Who may publish and prune in a directory of checkpoints: the processes of its newest generation, one at a time.

A process that was believed dead, or an orphan of a killed one, holds an older generation's token and is refused, under
the same lock under which a generation begins; so none can publish after a newer one has.
"""

import fcntl
import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from paftbench.errors import Refused
from paftbench.store.files import read_json, write_json

_GENERATION: Final = "generation.json"
_LOCK: Final = ".lock"


class Fenced(Exception):
    """Another generation saves here now: what this process has saved does not count."""


def allowed() -> None:
    """No check beside the generation's."""


@dataclass(frozen=True, kw_only=True)
class Fence:
    """The right of one generation; `check` may refuse besides, by raising, such as a trial's lost claim."""

    folder: Path
    generation: str
    check: Callable[[], None] = allowed

    @contextmanager
    def held(self) -> Iterator[None]:
        """Inside, nobody else publishes, prunes or begins. `Fenced` where another generation has begun since."""
        with _locked(self.folder):
            if generation_of(self.folder) != self.generation:
                raise Fenced(f"another generation saves in {self.folder} now")
            self.check()
            yield


def begin(folder: Path, check: Callable[[], None] = allowed) -> Fence:
    """Begin a generation: what earlier ones left unfinished goes, what they published stays.

    `ValueError` where `folder` cannot be written: better at the start than at the first save.
    """
    token = secrets.token_hex(4)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _locked(folder):
            check()
            write_json(folder / _GENERATION, {"generation": token})
            for left in folder.glob(".*.tmp"):
                shutil.rmtree(left) if left.is_dir() else left.unlink()
    except OSError as error:
        raise Refused(f"checkpoints cannot be saved in {folder}: {error.strerror or error}") from error
    return Fence(folder=folder, generation=token, check=check)


def generation_of(folder: Path) -> str | None:
    """The token of the newest generation; None where none has begun."""
    path = folder / _GENERATION
    return str(read_json(path).get("generation")) if path.exists() else None


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    descriptor = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
