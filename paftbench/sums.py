"""Sums that hang on the values alone: not on where these lie in memory, on blocks, or on the processor's vector width.

A library's sum, norm or dot product goes by alignment and instruction set, so that a number decided or logged with one
could differ between buckets, placements and machines. Here elements are converted to float64 and added one after
another within chunks of `CHUNK`, and the chunks' sums are added exactly. Shapes: L = rows, n = elements of a block,
N = elements of a chunk.
"""

from collections.abc import Iterable, Iterator, Sequence
from math import fsum, inf, sqrt

import torch
from torch import Tensor

CHUNK = 1 << 16  # elements of a row held in float64 at a time


def chunks(blocks: Sequence[Tensor]) -> Iterator[Tensor]:
    """Blocks [L, n] that follow one another, as float64 copies [L, N] cut where no block's end plays a part."""
    waiting: list[Tensor] = []
    room = CHUNK
    for block_Ln in blocks:
        low, size = 0, block_Ln.shape[1]
        while low < size:
            high = min(size, low + room)
            waiting.append(block_Ln[:, low:high])
            room, low = room - (high - low), high
            if not room:
                yield _joined(waiting)
                waiting, room = [], CHUNK
    if waiting:
        yield _joined(waiting)


def squares(chunks_LN: Iterable[Tensor]) -> list[float]:
    """Sum of squares of each row over float64 chunks [L, N], which are overwritten; empty without chunks."""
    rows = [_added(chunk_LN.square_()) for chunk_LN in chunks_LN]
    return [total(values) for values in zip(*torch.stack(rows).tolist(), strict=True)] if rows else []


def squares_by_part(x_N: Tensor, sizes: Sequence[int]) -> list[float]:
    """Sum of squares of each part of at most some chunks of a vector, the parts one after another."""
    parts = x_N.to(torch.float64, copy=True).square_().split(list(sizes))
    return torch.stack([_added(part_n) for part_n in parts]).tolist() if parts else []


def norms(blocks: Sequence[Tensor]) -> list[float]:
    """L2 norm of each row of blocks [L, n] that follow one another."""
    return [sqrt(square) for square in squares(chunks(blocks))]


def total(values: Iterable[float]) -> float:
    """The exact sum of non-negative floats, rounded once; infinite where it leaves a float's range."""
    try:
        return fsum(values)
    except OverflowError:
        return inf


def _joined(parts: Sequence[Tensor]) -> Tensor:
    if len(parts) == 1:
        return parts[0].to(torch.float64, copy=True)
    return torch.cat([part.to(torch.float64) for part in parts], dim=1)


def _added(x_N: Tensor) -> Tensor:
    """Sum over the last axis of a fresh float64 tensor."""
    if not x_N.shape[-1]:
        return x_N.new_zeros(x_N.shape[:-1])
    # A running sum has no other order than the elements'. On a GPU it has, and the plain sum is the repeatable one.
    return x_N.sum(-1) if x_N.is_cuda else x_N.cumsum(-1)[..., -1]
