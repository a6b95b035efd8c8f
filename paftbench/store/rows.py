"""A jsonl file that a running trial appends to: held open, counted, and cut back to where a checkpoint was taken."""

import hashlib
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paftbench.store.files import encode_line, replacing

_PART = 1 << 20  # bytes read at a time


class RowsLost(Exception):
    """A row file is not what was written to it."""


@dataclass(frozen=True, kw_only=True)
class Extent:
    """How much of a row file there was, and its SHA-256."""

    bytes: int
    sha256: str


class RowFile:
    """The file at `path`, which starts anew or with what an `Extent` says; only its creator ever appends to it.

    It is written by its descriptor, not its name: whoever takes the trial over puts another file in its place, and what
    the one before still writes goes with the old one.
    """

    def __init__(self, path: Path, kept: Extent | None = None, check: Callable[[], None] | None = None) -> None:
        self.path = path
        self._hash = hashlib.sha256()
        self._bytes = 0
        with replacing(path, check=check) as temporary:
            temporary.unlink(missing_ok=True)
            self._descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o666)
            try:
                if kept is not None:
                    self._take_over(path, kept)
            except BaseException:
                self.close()
                raise

    @property
    def extent(self) -> Extent:
        return Extent(bytes=self._bytes, sha256=self._hash.hexdigest())

    def append(self, rows: Iterable[Mapping[str, Any]]) -> None:
        self._write("".join(encode_line(row) for row in rows).encode())

    def touch(self) -> None:
        """Show whoever watches that the trial goes on."""
        os.utime(self._descriptor)

    def sync(self) -> None:
        """Make what was appended durable; `RowsLost` where the file at the path is not all of it."""
        os.fsync(self._descriptor)
        here = os.fstat(self._descriptor)
        try:
            there = self.path.stat()
        except FileNotFoundError:
            raise RowsLost(f"{self.path} was removed while the trial ran") from None
        if (there.st_ino, there.st_dev) != (here.st_ino, here.st_dev):
            raise RowsLost(f"{self.path} was replaced while the trial ran")
        if here.st_size != self._bytes:
            raise RowsLost(f"{self.path} has {here.st_size} bytes, but {self._bytes} were written to it")

    def close(self) -> None:
        os.close(self._descriptor)

    def _take_over(self, path: Path, kept: Extent) -> None:
        try:
            with path.open("rb") as old:
                while self._bytes < kept.bytes and (part := old.read(min(_PART, kept.bytes - self._bytes))):
                    self._write(part)
        except FileNotFoundError:
            pass
        if self.extent != kept:
            raise RowsLost(f"{path} lacks rows of before the checkpoint: it has {self._bytes} of {kept.bytes} bytes")

    def _write(self, content: bytes) -> None:
        self._hash.update(content)
        self._bytes += len(content)
        rest = memoryview(content)
        while rest:
            rest = rest[os.write(self._descriptor, rest) :]
