"""What a fault does to one rank at one step: drawn from its key, applied to pieces, settled, told to the log.

Shapes: K = strikes, N = elements of a piece or a slice.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import sqrt
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from paftbench.bits import as_integers
from paftbench.faults.changed import Changed, checked
from paftbench.faults.contract import DenseFault, SparseFault
from paftbench.faults.cover import Cover
from paftbench.faults.draws import Draws
from paftbench.faults.slices import Piece, Slice, put_back
from paftbench.ranks.axis import Ranks
from paftbench.ranks.layout import Slot
from paftbench.sums import total


class LogEntry(NamedTuple):
    """A row of the log: an element by its `flat` index, or None for all that a dense fault struck."""

    flat: int | None
    landed: bool
    values: Mapping[str, Any]


class Touched(NamedTuple):
    """Struck elements of one piece: the number of the first strike among all, and values before and after."""

    first: int
    before_K: Tensor
    after_K: Tensor


@dataclass(kw_only=True, eq=False, slots=True)
class Strike:
    """One fault on one hosted rank at one step: what was drawn, and, once settled, what landed and changed bits.

    `lost` fell on what is not there: parameters that no rank used, or their state. `discarded`: nobody took what was
    struck, so that nothing landed. `touched` is of faults that strike elements.
    """

    cover: Cover
    attempt: int
    draws: Draws
    drawn: int
    landed: int = 0
    changed: int = 0
    lost: int = 0
    discarded: bool = False
    touched: list[Touched] = field(default_factory=list)

    def apply(self, pieces: Sequence[Piece]) -> None:
        """Strike what falls into the pieces, in place."""
        raise NotImplementedError

    def settle(self, unused: Sequence[Slot]) -> None:
        """Count what landed, changed bits or was lost.

        A bucket carries zeros for a parameter that no rank used; strikes may have met them, and never reach a gradient.
        """
        raise NotImplementedError

    def entries(self, values: Mapping[int, Iterator[Mapping[str, Any]]]) -> Iterator[LogEntry]:
        """The log's rows; `values` are those of the touched elements, by the identity of what was `touched`."""
        raise NotImplementedError


@dataclass(kw_only=True, eq=False, slots=True)
class SparseStrike(Strike):
    """Single elements, at flat indices `flat_K` in ascending order."""

    model: SparseFault
    flat_K: NDArray[np.int64]
    lost_K: NDArray[np.bool_] = field(default_factory=lambda: np.empty(0, dtype=bool))

    def apply(self, pieces: Sequence[Piece]) -> None:
        # Two binary searches for all pieces together: which strikes fall into each of them.
        lows = self.flat_K.searchsorted([start for start, _ in pieces]).tolist()
        highs = self.flat_K.searchsorted([start + piece_N.numel() for start, piece_N in pieces]).tolist()
        for (start, piece_N), low, high in zip(pieces, lows, highs, strict=True):
            if low < high:
                index_K = self.flat_K[low:high] - start
                before_K = _taken(piece_N, index_K)
                after_K = self.model.change(before_K.clone(), self.draws.among(self.drawn, slice(low, high)))
                _put(piece_N, index_K, after_K)
                self.touched.append(Touched(low, before_K.cpu(), after_K.cpu()))

    def settle(self, unused: Sequence[Slot]) -> None:
        self.lost_K = np.zeros(self.drawn, dtype=bool)
        for slot in unused:
            self.lost_K |= (self.flat_K >= slot.start) & (self.flat_K < slot.stop)
        self.lost = int(self.lost_K.sum())
        for first, before_K, after_K in self.touched:
            kept_K = ~self.lost_K[first : first + len(before_K)]
            differs_K = (as_integers(before_K) != as_integers(after_K)).numpy()
            self.landed += int(kept_K.sum())
            self.changed += int((differs_K & kept_K).sum())

    def entries(self, values: Mapping[int, Iterator[Mapping[str, Any]]]) -> Iterator[LogEntry]:
        for piece in sorted(self.touched, key=lambda piece: piece.first):
            for k, row in enumerate(values[id(piece)], start=piece.first):
                if not self.lost_K[k]:
                    yield LogEntry(int(self.flat_K[k]), True, row)
        for index in self.flat_K[self.lost_K]:
            yield LogEntry(int(index), False, {})


@dataclass(kw_only=True, eq=False, slots=True)
class DenseStrike(Strike):
    """Slices, of which the fault itself says what it changed; where nothing is drawn it only sees them."""

    model: DenseFault
    state: dict[str, Tensor]
    seen: list[tuple[Slice, Changed]] = field(default_factory=list)

    def apply(self, pieces: Sequence[Piece]) -> None:
        for run in self.cover.runs(pieces):
            grad_N, origins = run.take(pieces)
            if self.model.watches:
                self.model.observe(grad_N, run.where, self.state, self.draws)
            if self.drawn:
                changed = self.model.change(grad_N, run.where, self.state, self.draws)
                self.seen.append((run.where, checked(changed, self.model.name, run.where)))
                put_back(grad_N, origins)

    def settle(self, unused: Sequence[Slot]) -> None:
        absent = [slot for slot in unused if slot.name in self.cover.offsets]
        for slot in absent if self.model.watches else ():
            # What no rank used gave zeros, in every placement, whether or not a bucket carried them.
            where = Slice.of(slot, self.cover.offsets[slot.name], self.cover.size)
            self.model.observe(torch.zeros(where.elements, dtype=slot.dtype), where, self.state, self.draws)
        starts = {slot.start for slot in absent}
        self.seen = [(where, changed) for where, changed in self.seen if where.start not in starts]
        met = sum(where.elements if changed.struck is None else changed.struck for where, changed in self.seen)
        self.landed = min(self.drawn, met)
        self.changed = min(self.landed, self.elements)
        self.lost = min(self.drawn - self.landed, sum(slot.stop - slot.start for slot in absent))

    @property
    def elements(self) -> int:
        """How many elements changed, once settled."""
        return sum(changed.elements for _, changed in self.seen)

    @property
    def norm(self) -> float:
        """L2 norm of the change, once settled."""
        return sqrt(total(square for _, changed in self.seen for square in changed.squares))

    def entries(self, values: Mapping[int, Iterator[Mapping[str, Any]]]) -> Iterator[LogEntry]:
        if self.landed:
            yield LogEntry(None, True, {"norm": self.norm, "elements": self.elements})
        if self.lost:
            yield LogEntry(None, False, {"elements": self.lost})


def strikes_at(
    cover: Cover, ranks: Ranks, step: int, attempt: int, state: dict[str, Tensor] | None = None
) -> Iterator[Strike]:
    """The strikes of a fault on the ranks hosted here; a fault that keeps a past sees every rank at every step."""
    model = cover.fault.model
    struck = cover.ranks_at(step, attempt, ranks.world_size)
    for row, rank in enumerate(ranks.local):
        if rank not in struck and not model.watches:
            continue
        key = cover.key(step, attempt, rank, *(() if cover.kind is None else (cover.kind,)))
        draws = Draws(key, step=step, rank=rank, row=row, dtype=cover.dtype)
        drawn = model.count(cover.size, draws) if rank in struck else 0
        if not drawn and not model.watches:
            continue
        match model:
            case SparseFault():
                # The same stream goes on from the count to the places: all of them for the rank at once, without
                # replacement, so that each strike has an element of its own however buckets cut the gradient.
                places = draws.generator.choice(cover.size, drawn, replace=False, shuffle=False)
                flat_K = cover.to_flat(np.sort(places))
                yield SparseStrike(cover=cover, attempt=attempt, draws=draws, drawn=drawn, model=model, flat_K=flat_K)
            case DenseFault():
                past = {} if state is None else state
                yield DenseStrike(cover=cover, attempt=attempt, draws=draws, drawn=drawn, model=model, state=past)


def _taken(piece_N: Tensor, index_K: NDArray[np.int64]) -> Tensor:
    """Copies of elements; a few of them are cheaper to reach through NumPy where the memory allows it."""
    if piece_N.is_cuda:
        return piece_N[torch.from_numpy(index_K).to(piece_N.device)]
    return torch.from_numpy(as_integers(piece_N).numpy()[index_K]).view(piece_N.dtype)


def _put(piece_N: Tensor, index_K: NDArray[np.int64], value_K: Tensor) -> None:
    if piece_N.is_cuda:
        piece_N[torch.from_numpy(index_K).to(piece_N.device)] = value_K
    else:
        as_integers(piece_N).numpy()[index_K] = as_integers(value_K).numpy()
