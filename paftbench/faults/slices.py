"""Slices for dense faults: runs of covered parameters that follow each other in the flat index space.

Small neighbours that lie apart in memory are struck on one joined copy, which costs less than a call for each. Shapes:
N = elements of a run.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from paftbench import sums
from paftbench.faults.draws import Part
from paftbench.faults.strikes import Cover
from paftbench.ranks.layout import Layout

JOINED = 1 << 16  # elements up to which neighbours are copied together

Piece = tuple[int, Tensor]
Extent = tuple[int, int, torch.dtype]  # a piece's flat start and elements


@dataclass(frozen=True, kw_only=True)
class Run:
    """A slice from flat index `start`, at `offset` in the fault's own space, made of whole `parts`.

    It comes from `sources`: (number of the piece, from, to), one after another.
    """

    start: int
    offset: int
    parts: list[Part]
    dtype: torch.dtype
    sources: list[tuple[int, int, int]]

    @property
    def elements(self) -> int:
        return sum(part.elements for part in self.parts)

    def take(self, pieces: Sequence[Piece]) -> tuple[Tensor, list[Tensor]]:
        """The run's gradient [N], and where it has to be copied back to if it is a joined copy."""
        origins = []
        for number, low, high in self.sources:
            grad_N = pieces[number][1]
            origins.append(grad_N if high - low == grad_N.numel() else grad_N[low:high])
        return (origins[0], []) if len(origins) == 1 else (torch.cat(origins), origins)

    def squares(self, after_N: Tensor, before_N: Tensor) -> list[float]:
        """Squared L2 norm of the change to each part."""
        return sums.squares_by_part(after_N.double() - before_N.double(), [part.elements for part in self.parts])


def put_back(grad_N: Tensor, origins: Sequence[Tensor]) -> None:
    """Write a joined copy back."""
    low = 0
    for origin in origins:  # `split` would cost more than the copies
        high = low + origin.numel()
        origin.copy_(grad_N[low:high])
        low = high


def plan_runs(cover: Cover, layout: Layout, shape: Sequence[Extent], *, separate: bool) -> list[Run]:
    """The covered parameters of pieces of this `shape` as few runs as possible; `separate`: each on its own."""
    found: list[Run] = []
    for number in sorted(range(len(shape)), key=lambda number: shape[number][0]):
        start, elements, dtype = shape[number]
        for slot in layout.within(start, start + elements):
            offset = cover.offset_of(slot)
            if offset is None or slot.start == slot.stop:
                continue
            source = (number, slot.start - start, slot.stop - start)
            parts = [Part.of(slot)]
            run = Run(start=slot.start, offset=offset, parts=parts, dtype=dtype, sources=[source])
            if found and not separate and _fits(found[-1], run):
                found[-1] = _merged(found[-1], run)
            else:
                found.append(run)
    return found


def _fits(run: Run, following: Run) -> bool:
    adjacent = run.start + run.elements == following.start and run.dtype == following.dtype
    in_memory = len(run.sources) == 1 and _continues(run, following)
    return adjacent and (in_memory or run.elements + following.elements <= JOINED)


def _continues(run: Run, following: Run) -> bool:
    number, _, high = run.sources[-1]
    return following.sources[0][:2] == (number, high)


def _merged(run: Run, following: Run) -> Run:
    sources = list(run.sources)
    if _continues(run, following):
        number, low, _ = sources.pop()
        sources.append((number, low, following.sources[0][2]))
    else:
        sources += following.sources
    return Run(start=run.start, offset=run.offset, parts=run.parts + following.parts, dtype=run.dtype, sources=sources)
