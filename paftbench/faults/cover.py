"""Which elements a fault covers, and which ranks it strikes at a step: pure functions of its key, in every process."""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray

from paftbench.errors import Refused
from paftbench.faults.draws import Key, generator_of
from paftbench.faults.fault import Fault, RandomRanks
from paftbench.faults.slices import Piece, Span, Stretch, plan_runs
from paftbench.ranks.layout import Layout, Slot
from paftbench.ranks.sites import Site

_STRUCK = {Site.PARAMETER: "parameters", Site.OPTIMIZER_STATE: "optimizer state"}


@dataclass(frozen=True, kw_only=True, eq=False)
class Cover:
    """A fault and the elements it covers: its own index space, the selected parameters one after another.

    `kind`: at site `optimizer_state`, the kind of state that the index space is of. `separate`: a struck parameter may
    turn out unused after all, so a dense fault strikes parameters one by one.
    """

    fault: Fault
    seed: int
    layout: Layout
    slots: tuple[Slot, ...]
    kind: str | None = None
    separate: bool = False
    _planned: dict[tuple[Span, ...], list[Stretch]] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, fault: Fault, layout: Layout, seed: int, kind: str | None = None, separate: bool = False) -> "Cover":
        """`ValueError` for a pattern that matches no parameter or a dtype that the fault model refuses.

        The dtypes of optimizer state are known once it exists, for each kind.
        """
        slots = layout.select(fault.parameters)
        if fault.site is not Site.OPTIMIZER_STATE or kind is not None:
            _check_dtypes(fault, {slot.dtype for slot in slots}, _STRUCK.get(fault.site, "gradients"))
        return cls(fault=fault, seed=seed, layout=layout, slots=slots, kind=kind, separate=separate)

    @cached_property
    def _starts(self) -> NDArray[np.int64]:
        """Where each slot starts in the covered space."""
        sizes = [slot.stop - slot.start for slot in self.slots]
        return np.cumsum([0, *sizes[:-1]], dtype=np.int64)

    @cached_property
    def offsets(self) -> dict[str, int]:
        """Where each parameter starts in the covered space, by name."""
        return {slot.name: start for slot, start in zip(self.slots, self._starts.tolist(), strict=True)}

    @cached_property
    def size(self) -> int:
        return sum(slot.stop - slot.start for slot in self.slots)

    @property
    def dtype(self) -> torch.dtype:
        return self.slots[0].dtype

    def to_flat(self, covered_K: NDArray[np.int64]) -> NDArray[np.int64]:
        """Covered positions as flat indices of the whole gradient."""
        if self.slots[-1].stop == self.size:
            return covered_K  # everything is covered
        which_K = np.searchsorted(self._starts, covered_K, side="right") - 1
        return covered_K + self._shifts[which_K]

    @cached_property
    def _shifts(self) -> NDArray[np.int64]:
        """How far each slot lies behind its place in the covered space."""
        return np.array([slot.start for slot in self.slots], dtype=np.int64) - self._starts

    def runs(self, pieces: Sequence[Piece]) -> list[Stretch]:
        """The slices of these pieces for a dense fault; the same pieces come at every step."""
        shape = tuple((start, piece_N.numel(), piece_N.dtype) for start, piece_N in pieces)
        if shape not in self._planned:
            self._planned[shape] = plan_runs(self.offsets, self.size, self.layout, shape, separate=self.separate)
        return self._planned[shape]

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


def _check_dtypes(fault: Fault, dtypes: AbstractSet[torch.dtype], what: str) -> None:
    """`ValueError` where a fault cannot strike numbers of these types."""
    model = fault.model
    for dtype in dtypes:
        if dtype not in model.dtypes:
            raise Refused(f"fault {fault.name!r}: fault model {model.name} cannot strike {dtype} {what}")
        model.check(dtype)
    # Strikes are counted once over all elements, so there is one probability for all of them.
    if len({model.expected(1, 0, dtype) for dtype in dtypes}) > 1:
        raise Refused(f"fault {fault.name!r}: {model.unit} needs {what} of one dtype, got {sorted(map(str, dtypes))}")
