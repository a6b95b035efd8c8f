"""Slices for dense faults: runs of covered parameters that follow each other in the flat index space.

Small neighbours that lie apart in memory are struck on one joined copy, which costs less than a call for each. Shapes:
N = elements of a slice.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from paftbench.ranks.layout import Layout, Slot

JOINED = 1 << 16  # elements up to which neighbours are copied together

Piece = tuple[int, Tensor]
Span = tuple[int, int, torch.dtype]  # a piece's flat start and elements


class Part(NamedTuple):
    """A whole parameter within a slice."""

    name: str
    start: int
    elements: int


@dataclass(frozen=True, kw_only=True)
class Slice:
    """Where a dense fault is at work: whole parameters, `parts`, that follow one another.

    `start` is a flat index of the whole gradient. The fault has an index space of its own, the `size` elements of the
    parameters that it covers; there the slice starts at `offset`.
    """

    start: int
    offset: int
    size: int
    parts: tuple[Part, ...]

    @classmethod
    def of(cls, slot: Slot, offset: int, size: int) -> "Slice":
        """A slice of one parameter."""
        part = Part(name=slot.name, start=slot.start, elements=slot.stop - slot.start)
        return cls(start=slot.start, offset=offset, size=size, parts=(part,))

    @cached_property
    def elements(self) -> int:
        return sum(part.elements for part in self.parts)


@dataclass(frozen=True, kw_only=True)
class Stretch:
    """A slice, and the `sources` it comes from: (number of the piece, from, to), one after another."""

    where: Slice
    dtype: torch.dtype
    sources: list[tuple[int, int, int]]

    def take(self, pieces: Sequence[Piece]) -> tuple[Tensor, list[Tensor]]:
        """The run's gradient [N], and where it has to be copied back to if it is a joined copy."""
        origins = []
        for number, low, high in self.sources:
            grad_N = pieces[number][1]
            origins.append(grad_N if high - low == grad_N.numel() else grad_N[low:high])
        return (origins[0], []) if len(origins) == 1 else (torch.cat(origins), origins)


def put_back(grad_N: Tensor, origins: Sequence[Tensor]) -> None:
    """Write a joined copy back."""
    low = 0
    for origin in origins:  # `split` would cost more than the copies
        high = low + origin.numel()
        origin.copy_(grad_N[low:high])
        low = high


def plan_runs(
    offsets: Mapping[str, int], size: int, layout: Layout, shape: Sequence[Span], *, separate: bool
) -> list[Stretch]:
    """The covered parameters of pieces of this `shape` as few runs as possible; `separate`: each on its own.

    `offsets` says by name where each covered parameter starts in the fault's own space of `size` elements.
    """
    found: list[Stretch] = []
    for number in sorted(range(len(shape)), key=lambda number: shape[number][0]):
        start, elements, dtype = shape[number]
        for slot in layout.within(start, start + elements):
            if slot.name not in offsets or slot.start == slot.stop:
                continue
            source = (number, slot.start - start, slot.stop - start)
            run = Stretch(where=Slice.of(slot, offsets[slot.name], size), dtype=dtype, sources=[source])
            if found and not separate and _fits(found[-1], run):
                found[-1] = _merged(found[-1], run)
            else:
                found.append(run)
    return found


def _fits(run: Stretch, following: Stretch) -> bool:
    adjacent = run.where.start + run.where.elements == following.where.start and run.dtype == following.dtype
    in_memory = len(run.sources) == 1 and _continues(run, following)
    return adjacent and (in_memory or run.where.elements + following.where.elements <= JOINED)


def _continues(run: Stretch, following: Stretch) -> bool:
    number, _, high = run.sources[-1]
    return following.sources[0][:2] == (number, high)


def _merged(run: Stretch, following: Stretch) -> Stretch:
    sources = list(run.sources)
    if _continues(run, following):
        number, low, _ = sources.pop()
        sources.append((number, low, following.sources[0][2]))
    else:
        sources += following.sources
    where = replace(run.where, parts=run.where.parts + following.where.parts)
    return Stretch(where=where, dtype=run.dtype, sources=sources)
