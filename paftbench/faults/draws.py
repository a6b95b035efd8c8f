"""Keyed random streams: every draw of a fault is a pure function of its key.

The key of a strike is (fault_seed, fault name, attempt, step, rank), and for dense noise the parameter too; nothing
else enters, so the same strikes come out in every placement, bucket layout and resumed run. Shapes: K = strikes,
N = elements.
"""

import hashlib
import struct
from typing import Any

import numpy as np
import torch
from numpy.random.bit_generator import ISeedSequence
from numpy.typing import NDArray

Key = tuple[int | str, ...]
Digest = hashlib.blake2b

_TEXT = struct.Struct("<cQ")
_NUMBER = struct.Struct("<cq")


def seed_of(*key: int | str) -> int:
    """A 64-bit seed from a key; equal only for equal keys (BLAKE2b over a length-prefixed encoding)."""
    return _seed(_digest(key))


def _digest(key: Key) -> Digest:
    digest = hashlib.blake2b(digest_size=8)
    for part in key:
        _feed(digest, part)
    return digest


def _feed(digest: Digest, part: int | str) -> None:
    if isinstance(part, str):
        text = part.encode()
        digest.update(_TEXT.pack(b"s", len(text)) + text)
    else:
        digest.update(_NUMBER.pack(b"i", part))


def _seed(digest: Digest) -> int:
    return int.from_bytes(digest.digest(), "little")


class _Key(ISeedSequence):
    """A Philox key as it is: `Philox(key=...)` would first ask the system for entropy that it does not use."""

    def __init__(self, seed: int) -> None:
        self._words = np.array([seed, 0], dtype=np.uint64)

    def generate_state(self, n_words: int, dtype: Any = np.uint32) -> NDArray[np.uint64]:
        """The key's two words, which is what Philox asks for."""
        return self._words


def generator_of(*key: int | str) -> np.random.Generator:
    """A NumPy generator of its own for a key (Philox, counter-based)."""
    return np.random.Generator(np.random.Philox(_Key(seed_of(*key))))  # type: ignore[arg-type]


class Draws:
    """The random streams of one fault at one (attempt, step, rank), handed to fault models.

    `row` is the rank's place among the ranks hosted here; `dtype` the gradient's. A sparse fault's `change` sees
    `among`: its vectors are drawn for all strikes of the key and narrowed to the slice's share, so no strike depends on
    how buckets cut.
    """

    def __init__(self, key: Key, *, step: int, rank: int, row: int, dtype: torch.dtype) -> None:
        self.key = key
        self.step = step
        self.rank = rank
        self.row = row
        self.dtype = dtype
        self._stream = "place"
        self._generator: np.random.Generator | None = None
        self._torch: torch.Generator | None = None
        self._dense: Digest | None = None
        self._total = 0
        self._share: NDArray[np.int64] | slice = slice(None)

    @property
    def generator(self) -> np.random.Generator:
        """The key's stream, where it stands: counts and then places, or what a strike changes."""
        if self._generator is None:
            self._generator = generator_of(*self.key, self._stream)
        return self._generator

    def fresh(self) -> np.random.Generator:
        """The key's stream for counts and places from its beginning."""
        return generator_of(*self.key, "place")

    def among(self, total: int, share: NDArray[np.int64] | slice) -> "Draws":
        """The same draws, seen by the strikes numbered `share` out of `total`."""
        narrowed = Draws(self.key, step=self.step, rank=self.rank, row=self.row, dtype=self.dtype)
        narrowed._stream = "change"
        narrowed._total = total
        narrowed._share = share
        return narrowed

    def integers(self, low: int, high: int) -> NDArray[np.int64]:
        """One integer in [low, high) per strike, shape [K]."""
        return self.generator.integers(low, high, self._total, dtype=np.int64)[self._share]

    def uniform(self, columns: int | None = None) -> NDArray[np.float64]:
        """One uniform in [0, 1) per strike, shape [K], or `columns` of them, [K, columns]."""
        shape = self._total if columns is None else (self._total, columns)
        return self.generator.random(shape)[self._share]

    def torch_generator(self, name: str, device: torch.device) -> torch.Generator:
        """The stream of the key and a parameter's `name`, for dense draws on `device`, until the next call.

        By name, so that freezing or adding another parameter draws nothing anew.
        """
        if self._torch is None or self._dense is None:
            self._torch = torch.Generator(device=device)
            self._dense = _digest((*self.key, "dense"))
        digest = self._dense.copy()
        if not isinstance(name, str):
            raise TypeError(f"name (of the parameter that is drawn for) must be text, got {name!r}")
        _feed(digest, name)
        return self._torch.manual_seed(_seed(digest) >> 1)
