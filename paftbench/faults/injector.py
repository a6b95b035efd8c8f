"""Faults applied to gradients and to memory, verified and logged.

Shapes: N = elements of a piece, K = strikes. A piece is a contiguous run of whole parameters of one rank's gradient or
memory.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from paftbench.bits import as_integers
from paftbench.errors import Refused
from paftbench.faults.draws import Part
from paftbench.faults.log import InjectionLog, Row
from paftbench.faults.model import DenseFault, Fault, SparseFault, check_faults
from paftbench.faults.slices import Extent, Piece, Run, plan_runs, put_back
from paftbench.faults.strikes import Cover, Seen, Strike, strikes_at
from paftbench.ranks.axis import Ranks
from paftbench.ranks.layout import Layout, Slot
from paftbench.ranks.replicas import Memory
from paftbench.ranks.sites import BUILT_SITES, GRADIENT_SITES, Site


class InjectionError(RuntimeError):
    """A drawn strike did not land: an error of paftbench's, never of the training."""


@dataclass(kw_only=True)
class Strikes:
    """Exact counts: drawn, really applied, and those that changed bits."""

    drawn: int = 0
    landed: int = 0
    changed: int = 0


class Injector:
    """Applies a trial's faults to the ranks hosted here.

    A step is `begin`, any number of `strike` (each piece of each site once) and `end` for the gradients, then
    `strike_memory` for each space of memory. Counts are exact, also where the injection log has reached its cap.
    `separate`: a struck parameter may turn out unused after all, so dense faults strike parameters one by one.
    """

    def __init__(
        self, faults: Sequence[Fault], layout: Layout, ranks: Ranks, *, seed: int, separate: bool = False
    ) -> None:
        self.layout = layout
        self.ranks = ranks
        check_faults(faults, ranks.world_size)
        for fault in faults:
            if fault.site not in BUILT_SITES:
                raise Refused(f"fault {fault.name!r}: site {str(fault.site)!r} cannot be struck yet")
        self.covers = [Cover.of(fault, layout, seed) for fault in faults]
        self.states: dict[tuple[str, str | None], dict[str, Tensor]] = {}
        for fault in faults:
            if fault.site is not Site.OPTIMIZER_STATE:
                self.states[fault.name, None] = fault.model.init(layout, ranks)
        self.separate = separate
        self.counts = Strikes()
        self.drawn_now = 0
        self._log = InjectionLog(layout)
        self._active: list[Strike] = []
        self._step = self._attempt = 0
        self._kinds: dict[tuple[str, str, tuple[Extent, ...]], Cover] = {}
        self._runs: dict[tuple[str, tuple[Extent, ...]], list[Run]] = {}

    @property
    def sites(self) -> frozenset[Site]:
        """The sites that any fault of the trial may strike."""
        return frozenset(cover.fault.site for cover in self.covers)

    def begin(self, step: int, attempt: int = 0) -> None:
        """Open a step (or its re-execution number `attempt`): draw what strikes the gradients of the ranks here."""
        self._step, self._attempt = step, attempt
        self.drawn_now = 0
        self._draw([cover for cover in self.covers if cover.fault.site in GRADIENT_SITES])

    def is_due(self, site: Site) -> bool:
        """Whether this step's open draws strike anything at a site, on the ranks hosted here."""
        return any(strike.drawn and strike.cover.fault.site is site for strike in self._active)

    def strike(self, site: Site, row: int, pieces: Sequence[Piece]) -> None:
        """Apply the strikes on hosted rank number `row` that fall into `pieces`, in place."""
        for strike in self._active:
            if strike.cover.fault.site is site and strike.row == row:
                model = strike.cover.fault.model
                if isinstance(model, SparseFault):
                    if strike.drawn:
                        self._strike_sparse(model, strike, pieces)
                elif isinstance(model, DenseFault):
                    self._strike_dense(model, strike, pieces)

    def strike_memory(self, memory: Memory) -> None:
        """Draw, apply and settle the step's strikes on one space of memory.

        What does not exist there (the state of a parameter that was never used) is struck without landing.
        """
        self._draw([self._cover_of(cover, memory) for cover in self.covers if cover.fault.site is memory.site])
        if self._active:
            for row in range(len(self.ranks.local)):
                self.strike(memory.site, row, [(start, block[row]) for start, block in memory.blocks])
            self.end(self.layout.outside(memory.blocks))

    def end(self, unused: Sequence[Slot] = ()) -> None:
        """Settle what was drawn: strikes on parameters that no rank used did not land, every other one must have.

        Raises `InjectionError` naming the first strike that is missing.
        """
        for strike in self._active:
            if strike.watches:
                self._show_unused(strike, unused)
            lost = strike.settle(unused)
            if strike.landed + lost != strike.drawn:
                raise InjectionError(
                    f"fault {strike.cover.fault.name!r} drew {strike.drawn} strikes at step {strike.step} on rank "
                    f"{strike.rank}, but {strike.landed} landed and {lost} fell on unused parameters"
                )
            self.counts.drawn += strike.drawn
            self.counts.landed += strike.landed
            self.counts.changed += strike.changed
            if strike.drawn:
                self._log.add(strike, lost)
        self._active = []

    def drain(self) -> list[Row]:
        """The injection log's rows since the last call."""
        return self._log.drain()

    def state_dict(self) -> dict[str, Any]:
        """For a checkpoint; rows have to be drained first."""
        counts = vars(self.counts).copy()
        return {"states": self.states, "counts": counts, "logged": self._log.logged, "step": self._step}

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        self.states = saved["states"]
        self._kinds.clear()
        self.counts = Strikes(**saved["counts"])
        self._log.logged = saved["logged"]
        self._step = saved["step"]

    def _draw(self, covers: Sequence[Cover]) -> None:
        drawn = [strikes_at(cover, self.ranks, self._step, self._attempt) for cover in covers]
        self._active = [strike for strikes in drawn for strike in strikes]
        self.drawn_now += sum(strike.drawn for strike in self._active)

    def _cover_of(self, cover: Cover, memory: Memory) -> Cover:
        """A fault's cover in a space of memory: of a kind of optimizer state its own, with a state of its own."""
        if memory.kind is None:
            return cover
        name = cover.fault.name
        key = (name, memory.kind, tuple((start, block.shape[1], block.dtype) for start, block in memory.blocks))
        if key not in self._kinds:
            layout = self.layout.retyped(memory.blocks)
            self._kinds[key] = Cover.of(cover.fault, layout, cover.seed, memory.kind)
            if (name, memory.kind) not in self.states:
                self.states[name, memory.kind] = cover.fault.model.init(layout, self.ranks)
        return self._kinds[key]

    def _strike_sparse(self, model: SparseFault, strike: Strike, pieces: Sequence[Piece]) -> None:
        lows = strike.flat_K.searchsorted([start for start, _ in pieces]).tolist()
        highs = strike.flat_K.searchsorted([start + grad_N.numel() for start, grad_N in pieces]).tolist()
        for (start, grad_N), low, high in zip(pieces, lows, highs, strict=True):
            if low < high:
                index_K = strike.flat_K[low:high] - start
                before_K = _taken(grad_N, index_K)
                after_K = model.change(before_K.clone(), strike.draws.among(strike.drawn, slice(low, high)))
                _put(grad_N, index_K, after_K)
                strike.touched.append((low, before_K.cpu(), after_K.cpu()))

    def _strike_dense(self, model: DenseFault, strike: Strike, pieces: Sequence[Piece]) -> None:
        state = self.states[strike.cover.fault.name, strike.cover.kind]
        for run in self._runs_of(strike.cover, pieces):
            grad_N, origins = run.take(pieces)
            strike.draws.offset = run.offset
            strike.draws.parts = run.parts
            if strike.watches:
                model.observe(grad_N, run.start, state, strike.draws)
            if strike.drawn:
                before_N = None if model.reports_norm else grad_N.clone()
                strike.draws.squares, strike.draws.struck = [], None
                changed = model.change(grad_N, run.start, state, strike.draws)
                put_back(grad_N, origins)
                squares = strike.draws.squares if before_N is None else run.squares(grad_N, before_N)
                struck = grad_N.numel() if strike.draws.struck is None else strike.draws.struck
                strike.seen.append(Seen(start=run.start, elements=struck, squares=squares, changed=changed))

    def _show_unused(self, strike: Strike, unused: Sequence[Slot]) -> None:
        """A parameter that no rank used gave zeros, in every placement, whether or not a bucket carried them."""
        model, state = strike.cover.fault.model, self.states[strike.cover.fault.name, strike.cover.kind]
        for slot in unused:
            offset = strike.cover.offset_of(slot)
            if isinstance(model, DenseFault) and offset is not None:
                strike.draws.offset = offset
                strike.draws.parts = [Part.of(slot)]
                model.observe(torch.zeros(slot.stop - slot.start, dtype=slot.dtype), slot.start, state, strike.draws)

    def _runs_of(self, cover: Cover, pieces: Sequence[Piece]) -> list[Run]:
        shape = tuple((start, grad_N.numel(), grad_N.dtype) for start, grad_N in pieces)
        key = (cover.fault.name, shape)
        if key not in self._runs:
            self._runs[key] = plan_runs(cover, self.layout, shape, separate=self.separate)
        return self._runs[key]


def _taken(grad_N: Tensor, index_K: NDArray[np.int64]) -> Tensor:
    """Copies of elements; a few of them are cheaper to reach through NumPy where the memory allows it."""
    if grad_N.is_cuda:
        return grad_N[torch.from_numpy(index_K).to(grad_N.device)]
    return torch.from_numpy(as_integers(grad_N).numpy()[index_K]).view(grad_N.dtype)


def _put(grad_N: Tensor, index_K: NDArray[np.int64], value_K: Tensor) -> None:
    if grad_N.is_cuda:
        grad_N[torch.from_numpy(index_K).to(grad_N.device)] = value_K
    else:
        as_integers(grad_N).numpy()[index_K] = as_integers(value_K).numpy()
