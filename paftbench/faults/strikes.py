"""Which strikes a step draws: pure functions of the fault's key, the same in every process."""

from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from math import sqrt

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from paftbench.bits import as_integers
from paftbench.errors import Refused
from paftbench.faults.draws import Draws, Key, generator_of
from paftbench.faults.model import DenseFault, Fault, RandomRanks, SparseFault
from paftbench.ranks.axis import Ranks
from paftbench.ranks.layout import Layout, Slot
from paftbench.ranks.sites import Site
from paftbench.sums import total


@dataclass(frozen=True, kw_only=True)
class Cover:
    """A fault and the elements it covers: its own index space, the selected parameters one after another.

    `kind`: at site `optimizer_state`, the kind of state that the index space is of.
    """

    fault: Fault
    seed: int
    slots: tuple[Slot, ...]
    offsets: NDArray[np.int64]
    size: int
    dtype: torch.dtype
    by_name: dict[str, int]
    kind: str | None = None

    @classmethod
    def of(cls, fault: Fault, layout: Layout, seed: int, kind: str | None = None) -> "Cover":
        """`ValueError` for a pattern that matches no parameter or a dtype that the fault model refuses.

        The dtypes of optimizer state are known once it exists, for each kind.
        """
        slots = layout.select(fault.parameters)
        if fault.site is not Site.OPTIMIZER_STATE or kind is not None:
            _check_dtypes(fault, {slot.dtype for slot in slots}, _STRUCK.get(fault.site, "gradients"))
        sizes = np.array([slot.stop - slot.start for slot in slots], dtype=np.int64)
        offsets = np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.int64)
        by_name = {slot.name: int(offset) for slot, offset in zip(slots, offsets, strict=True)}
        return cls(
            fault=fault, seed=seed, slots=slots, offsets=offsets, size=int(sizes.sum()), dtype=slots[0].dtype,
            by_name=by_name, kind=kind,
        )  # fmt: skip

    def offset_of(self, slot: Slot) -> int | None:
        """Where a parameter starts in the covered space; None for one outside it."""
        return self.by_name.get(slot.name)

    def to_flat(self, covered_K: NDArray[np.int64]) -> NDArray[np.int64]:
        """Covered positions as flat indices of the whole gradient."""
        if self.slots[-1].stop == self.size:
            return covered_K
        which_K = np.searchsorted(self.offsets, covered_K, side="right") - 1
        starts = np.array([slot.start for slot in self.slots], dtype=np.int64)
        return covered_K - self.offsets[which_K] + starts[which_K]

    def key(self, step: int, attempt: int, *more: int | str) -> Key:
        """The key of a step's draws; a permanent fault leaves the attempt out and so strikes a repetition the same."""
        again = (attempt,) if self.fault.persistence == "transient" else ("permanent",)
        return (self.seed, self.fault.name, *again, step, *more)

    def ranks_at(self, step: int, attempt: int, world_size: int) -> frozenset[int]:
        """The ranks struck at a step, of the whole world; empty when the schedule passes over it."""
        key = self.key(step, attempt, "all ranks")
        if not self.fault.schedule.strikes(step, key):
            return frozenset()
        if self.fault.ranks == "all":
            return frozenset(range(world_size))
        if isinstance(self.fault.ranks, RandomRanks):
            chosen = generator_of(*key, "ranks").choice(world_size, self.fault.ranks.count, replace=False)
            return frozenset(int(rank) for rank in chosen)
        return frozenset(self.fault.ranks)


_STRUCK = {Site.PARAMETER: "parameters", Site.OPTIMIZER_STATE: "optimizer state"}


def _check_dtypes(fault: Fault, dtypes: AbstractSet[torch.dtype], what: str) -> None:
    """`ValueError` where a fault cannot strike numbers of these types."""
    model = fault.model
    for dtype in dtypes:
        if dtype not in model.dtypes:
            raise Refused(f"fault {fault.name!r}: fault model {model.name} cannot strike {dtype} {what}")
    if len(dtypes) > 1 and isinstance(model, SparseFault) and model.unit == "per_bit":
        raise Refused(f"fault {fault.name!r}: per_bit needs {what} of one dtype, got {sorted(map(str, dtypes))}")
    for dtype in dtypes:
        model.check(dtype)


_NONE_LOST: NDArray[np.bool_] = np.empty(0, dtype=bool)


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What a dense fault did to one slice, which starts at flat index `start`: `elements` struck of it, of which
    `changed` changed; `squares` is of its parts.
    """

    start: int
    elements: int
    squares: list[float]
    changed: int


@dataclass(kw_only=True, eq=False, slots=True)
class Strike:
    """What one fault does to one hosted rank at one step: what was drawn, and, once settled, what landed.

    `watches`: the fault sees every gradient before it strikes, also where it strikes none.

    `touched` holds (first strike, values before, values after) of each struck piece, `seen` what a dense fault passed;
    `lost_K` marks strikes on what is not there (unused parameters) and is empty where every parameter was used.
    """

    cover: Cover
    step: int
    attempt: int
    rank: int
    row: int
    draws: Draws
    drawn: int
    flat_K: NDArray[np.int64]
    watches: bool
    landed: int = 0
    changed: int = 0
    touched: list[tuple[int, Tensor, Tensor]] = field(default_factory=list)
    seen: list[Seen] = field(default_factory=list)
    lost_K: NDArray[np.bool_] = field(default_factory=lambda: _NONE_LOST)

    @property
    def is_sparse(self) -> bool:
        return isinstance(self.cover.fault.model, SparseFault)

    def settle(self, unused: Sequence[Slot]) -> int:
        """Count what landed and what changed bits; returns the strikes lost on parameters that no rank used.

        A bucket carries zeros for an unused parameter, which strikes may have met; they never reach a gradient.
        """
        if self.is_sparse and not unused:
            for _, before_K, after_K in self.touched:
                self.landed += before_K.numel()
                self.changed += int(torch.count_nonzero(as_integers(before_K) != as_integers(after_K)))
            return 0
        if self.is_sparse:
            self.lost_K = _inside(self.flat_K, unused)
            for low, before_K, after_K in self.touched:
                kept_K = ~self.lost_K[low : low + len(before_K)]
                differs_K = (as_integers(before_K) != as_integers(after_K)).numpy()
                self.landed += int(kept_K.sum())
                self.changed += int((differs_K & kept_K).sum())
            return int(self.lost_K.sum())
        lost = {slot.start for slot in unused}
        self.seen = [seen for seen in self.seen if seen.start not in lost]
        self.landed = min(self.drawn, sum(seen.elements for seen in self.seen))
        self.changed = min(self.landed, sum(seen.changed for seen in self.seen))
        covered = (slot for slot in unused if self.cover.offset_of(slot) is not None)
        return min(self.drawn - self.landed, sum(slot.stop - slot.start for slot in covered))

    @property
    def norm(self) -> float:
        """L2 norm of the change by a dense fault, once settled."""
        return sqrt(total(square for seen in self.seen for square in seen.squares))


def _inside(flat_K: NDArray[np.int64], slots: Sequence[Slot]) -> NDArray[np.bool_]:
    inside_K = np.zeros(len(flat_K), dtype=bool)
    for slot in slots:
        inside_K |= (flat_K >= slot.start) & (flat_K < slot.stop)
    return inside_K


_NOWHERE = np.empty(0, dtype=np.int64)


def strikes_at(cover: Cover, ranks: Ranks, step: int, attempt: int) -> Iterator[Strike]:
    """The strikes of a fault on the ranks hosted here; a fault that keeps a past sees every rank at every step."""
    model = cover.fault.model
    watches = isinstance(model, DenseFault) and type(model).observe is not DenseFault.observe
    struck = cover.ranks_at(step, attempt, ranks.world_size)
    for row, rank in enumerate(ranks.local):
        if rank not in struck and not watches:
            continue
        key = cover.key(step, attempt, rank, *(() if cover.kind is None else (cover.kind,)))
        draws = Draws(key, step=step, rank=rank, row=row, size=cover.size, dtype=cover.dtype)
        drawn, flat_K = 0, _NOWHERE
        if rank in struck and isinstance(model, DenseFault):
            drawn = model.events(cover.size, draws)
        elif rank in struck and isinstance(model, SparseFault):
            drawn = model.count(cover.size, draws)
            places = draws.generator.choice(cover.size, drawn, replace=False, shuffle=False)
            flat_K = cover.to_flat(np.sort(places))
        if drawn or watches:
            yield Strike(
                cover=cover,
                step=step,
                attempt=attempt,
                rank=rank,
                row=row,
                draws=draws,
                drawn=drawn,
                flat_K=flat_K,
                watches=watches,
            )
