"""The bytes of a share on disk, and the hash that vouches for them. Importable without torch."""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final

from paftbench.store.files import opened

_CHUNK: Final = 1 << 24  # bytes that are read or written at once


def write(file: BinaryIO, pieces: Iterator[memoryview]) -> str:
    """Write a share and give its SHA-256."""
    digest = hashlib.sha256()
    for piece in pieces:
        for start in range(0, len(piece), _CHUNK):
            part = piece[start : start + _CHUNK]
            digest.update(part)
            file.write(part)
    return digest.hexdigest()


def digest_of(path: Path) -> str:
    """A file's SHA-256, in a few MiB of memory."""
    digest = hashlib.sha256()
    with opened(path) as file:
        while part := file.read(_CHUNK):
            digest.update(part)
    return digest.hexdigest()
