"""JSON files that survive a crash: written under a temporary name, synced, renamed; lines that may be torn at the end.

Everything that is read back comes through one door, `opened`: a regular file of a bearable size, never one that waits.
"""

import hashlib
import json
import os
import re
import stat
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO, Final

from paftbench.errors import Refused
from paftbench.process import has_ended, machine
from paftbench.store.json_text import encoded, mapping

LARGEST: Final = 1 << 26  # bytes of a JSON file, and of a line of a jsonl file; ours are a hundredth of it
_KINDS = {stat.S_IFDIR: "a directory", stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket"}
_TEMPORARY = re.compile(r"\.(?P<name>.+)\.(?P<machine>[0-9a-f]{8})\.(?P<pid>\d+)\.\d+\.tmp")


def write_json(
    path: Path, payload: Mapping[str, Any], *, durable: bool = True, check: Callable[[], None] | None = None
) -> None:
    """Replace `path` atomically: readers see the old content or the whole new one."""
    text = json.dumps(encoded(payload), indent=1, allow_nan=False) + "\n"
    write_text(path, text, durable=durable, check=check)


def write_text(path: Path, text: str, *, durable: bool = True, check: Callable[[], None] | None = None) -> None:
    """Write, sync and rename; on any failure the old file stays and the temporary one goes."""
    with replacing(path, durable=durable, check=check) as temporary:
        temporary.write_text(text, encoding="utf-8")


@contextmanager
def replacing(path: Path, *, durable: bool = True, check: Callable[[], None] | None = None) -> Iterator[Path]:
    """A name to write under: when the block ends the file is synced and takes the place of `path`, or it goes.

    Not `durable`: without syncing, which is most of the time; after a power failure the file may be blank. `check` is
    called last of all before the rename, and prevents it by raising.
    """
    temporary = path.with_name(f".{path.name}.{_here()}.{os.getpid()}.{threading.get_ident()}.tmp")
    try:
        yield temporary
        if durable:
            sync(temporary)
        if check is not None:
            check()
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    if durable:
        sync(path.parent)


def drop_temporaries(directory: Path, owned: Collection[str] = ()) -> None:
    """Remove the temporary files of processes that were killed while they wrote in a directory.

    `owned` names files that only the caller may write now: theirs are removed whoever wrote them, and so never renamed.
    """
    for path in directory.glob(".*.tmp"):
        named = _TEMPORARY.fullmatch(path.name)
        if named is None:
            continue
        dead = named["machine"] == _here() and has_ended(int(named["pid"]))
        if dead or named["name"] in owned:
            path.unlink(missing_ok=True)


@cache
def _here() -> str:
    """This machine in a file's name; no host name."""
    return hashlib.sha256(machine().encode()).hexdigest()[:8]


def sync(path: Path) -> None:
    """Make a file's content durable, or renames inside a directory."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """A file to read. `FileNotFoundError` where there is none, `ValueError` where reading could wait for ever."""
    # Not blocking, because another process may put a pipe there between a look and the opening.
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    kind = stat.S_IFMT(os.fstat(descriptor).st_mode)
    if kind != stat.S_IFREG:
        os.close(descriptor)
        raise Refused(f"{path} is no file but {_KINDS.get(kind, 'a device')}")
    with os.fdopen(descriptor, "rb") as file:
        yield file


def check_inside(path: Path, root: Path) -> None:
    """`ValueError` where a link leads from `path` out of the directory `root`: what is there is none of its results."""
    own = Path(os.path.realpath(path))
    if not own.is_relative_to(os.path.realpath(root)):
        raise Refused(f"{path} is a link that leads out of {root}")


def read_json(path: Path) -> dict[str, Any]:
    """The inverse of `write_json`; `ValueError` in one line where the file is not a JSON mapping."""
    with opened(path) as file:
        content = file.read(LARGEST + 1)
    if len(content) > LARGEST:
        raise Refused(f"{path} is larger than {LARGEST >> 20} MiB: it is no record")
    return mapping(content, str(path))


def encode_line(row: Mapping[str, Any]) -> str:
    """One row of a jsonl file, newline included."""
    return json.dumps(encoded(row), separators=(",", ":"), allow_nan=False) + "\n"


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """Rows of a jsonl file, none where it does not exist; a last line that a crash tore is left out."""
    if not path.exists():
        return
    with opened(path) as file:
        for number, line in enumerate(iter(lambda: file.readline(LARGEST), b""), start=1):
            if not line.endswith(b"\n"):
                if len(line) == LARGEST:
                    raise Refused(f"{path}, line {number}, is longer than {LARGEST >> 20} MiB: it is no record")
                return
            yield mapping(line, f"{path}, line {number},")
