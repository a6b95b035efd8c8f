"""JSON files that survive a crash: written under a temporary name, synced, renamed; lines that may be torn at the end.

JSON has no NaN and no infinities: they are written as the strings "nan", "inf" and "-inf", and read back as floats.
"""

import hashlib
import json
import os
import re
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from math import isfinite, isnan
from pathlib import Path
from typing import Any

from paftbench.process import has_ended, machine

_WORDS = {"nan": float("nan"), "inf": float("inf"), "-inf": float("-inf")}
_HAS_WORD = re.compile(rb'"(?:nan|-?inf)"')  # most records have none, and need no second walk
_TEMPORARY = re.compile(r"\.(?P<name>.+)\.(?P<machine>[0-9a-f]{8})\.(?P<pid>\d+)\.\d+\.tmp")


def write_json(
    path: Path, payload: Mapping[str, Any], *, durable: bool = True, check: Callable[[], None] | None = None
) -> None:
    """Replace `path` atomically: readers see the old content or the whole new one."""
    text = json.dumps(_encoded(payload), indent=1, allow_nan=False) + "\n"
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


def read_json(path: Path) -> dict[str, Any]:
    """The inverse of `write_json`; `ValueError` in one line where the file is not a JSON mapping."""
    content = path.read_bytes()
    try:
        payload = json.loads(content)
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not JSON: {error}") from None
    if not isinstance(payload, dict):
        raise ValueError(f"{path} holds no JSON mapping")
    decoded: dict[str, Any] = _decoded(payload) if _HAS_WORD.search(content) else payload
    return decoded


def encode_line(row: Mapping[str, Any]) -> str:
    """One row of a jsonl file, newline included."""
    return json.dumps(_encoded(row), separators=(",", ":"), allow_nan=False) + "\n"


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """Rows of a jsonl file, none where it does not exist; a last line that a crash tore is left out."""
    if not path.is_file():
        return
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            if not line.endswith(b"\n"):
                return
            try:
                row = json.loads(line)
            except ValueError as error:
                raise ValueError(f"{path}, line {number}, is not JSON: {error}") from None
            if not isinstance(row, dict):
                raise ValueError(f"{path}, line {number}, holds no JSON mapping")
            yield _decoded(row) if _HAS_WORD.search(line) else row


def _encoded(value: Any) -> Any:
    if isinstance(value, float) and not isfinite(value):
        return "nan" if isnan(value) else ("inf" if value > 0 else "-inf")
    if isinstance(value, Mapping):
        return {str(key): _encoded(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_encoded(item) for item in value]
    return value


def _decoded(value: Any) -> Any:
    if isinstance(value, str):
        return _WORDS.get(value, value)
    if isinstance(value, dict):
        return {key: _decoded(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_decoded(item) for item in value]
    return value
