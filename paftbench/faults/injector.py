"""Faults applied to gradients and to memory, verified and logged.

A piece is a contiguous run of whole parameters of one rank's gradient or memory.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from paftbench.errors import Refused
from paftbench.faults.cover import Cover
from paftbench.faults.fault import Fault, check_faults
from paftbench.faults.log import InjectionLog, Row
from paftbench.faults.slices import Piece, Span
from paftbench.faults.strikes import Strike, strikes_at
from paftbench.ranks.axis import Ranks
from paftbench.ranks.layout import Layout, Slot
from paftbench.ranks.replicas import Memory
from paftbench.ranks.sites import BUILT_SITES, GRADIENT_SITES, Site


class InjectionError(RuntimeError):
    """A drawn strike did not land: an error of paftbench's, never of the training."""


@dataclass(kw_only=True)
class Strikes:
    """Exact counts: drawn, really applied, those that changed bits, and those on gradients that were thrown away."""

    drawn: int = 0
    landed: int = 0
    changed: int = 0
    discarded: int = 0


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
        self.covers = [Cover.of(fault, layout, seed, separate=separate) for fault in faults]
        self.states: dict[tuple[str, str | None], dict[str, Tensor]] = {}
        for fault in faults:
            if fault.site is not Site.OPTIMIZER_STATE:
                self.states[fault.name, None] = fault.model.init(layout, ranks)
        self.counts = Strikes()
        self.drawn_now = 0
        self._log = InjectionLog(layout)
        self._active: list[Strike] = []
        self._settled: list[Strike] = []  # of the open step
        self._open = Strikes()  # what they add to the counts
        self._step = self._attempt = 0
        self._kinds: dict[tuple[str, str, tuple[Span, ...]], Cover] = {}

    @property
    def sites(self) -> frozenset[Site]:
        """The sites that any fault of the trial may strike."""
        return frozenset(cover.fault.site for cover in self.covers)

    def begin(self, step: int, attempt: int = 0) -> None:
        """Open a step (or its re-execution number `attempt`): draw what strikes the gradients of the ranks here."""
        self._step, self._attempt = step, attempt
        self.drawn_now = 0
        self._settled, self._open = [], Strikes()
        self._draw([cover for cover in self.covers if cover.fault.site in GRADIENT_SITES])

    def is_due(self, site: Site) -> bool:
        """Whether this step's open draws strike anything at a site, on the ranks hosted here."""
        return any(strike.drawn and strike.cover.fault.site is site for strike in self._active)

    def strike(self, site: Site, row: int, pieces: Sequence[Piece]) -> None:
        """Apply the strikes on hosted rank number `row` that fall into `pieces`, in place."""
        for strike in self._active:
            if strike.cover.fault.site is site and strike.draws.row == row:
                strike.apply(pieces)

    def strike_memory(self, memory: Memory) -> None:
        """Draw, apply and settle the step's strikes on one space of memory.

        What does not exist there (the state of a parameter that was never used) is struck without landing.
        """
        self._draw([self._cover_of(cover, memory) for cover in self.covers if cover.fault.site is memory.site])
        if self._active:
            for row in range(len(self.ranks.local)):
                self.strike(memory.site, row, [(start, block[row]) for start, block in memory.blocks])
            self.end(self.layout.outside(memory.blocks))
            self.keep()

    def end(self, unused: Sequence[Slot] = ()) -> None:
        """Settle what was drawn: strikes on parameters that no rank used did not land, every other one must have.

        Raises `InjectionError` naming the first strike that is missing.
        """
        for strike in self._active:
            strike.settle(unused)
            if strike.landed + strike.lost != strike.drawn:
                raise InjectionError(
                    f"fault {strike.cover.fault.name!r} drew {strike.drawn} strikes at step {self._step} on rank "
                    f"{strike.draws.rank}, but {strike.landed} landed and {strike.lost} fell on unused parameters"
                )
            self.counts.drawn += strike.drawn
            for counts in (self.counts, self._open):
                counts.landed += strike.landed
                counts.changed += strike.changed
            if strike.drawn:
                self._log.add(strike)
                self._settled.append(strike)
        self._active = []

    def keep(self) -> None:
        """The gradients that were struck since `begin` were taken, or a step was made without them."""
        self._settled, self._open = [], Strikes()

    def discard(self) -> None:
        """The gradients that were struck since `begin` are thrown away: nothing has landed."""
        for strike in self._settled:
            strike.discarded = True
        self.counts.landed -= self._open.landed
        self.counts.changed -= self._open.changed
        self.counts.discarded += self._open.landed
        self._settled, self._open = [], Strikes()

    def drain(self, *, decided: bool = False) -> list[Row]:
        """The injection log's rows since the last call; `decided`: but for those that may yet be discarded."""
        return self._log.drain(self._settled if decided else ())

    def state_dict(self) -> dict[str, Any]:
        """For a checkpoint; rows have to be drained first."""
        counts, opened = vars(self.counts).copy(), vars(self._open).copy()
        return {"states": self.states, "counts": counts, "open": opened, "logged": self._log.logged, "step": self._step}

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        self.states = saved["states"]
        self._kinds.clear()
        self.counts, self._open = Strikes(**saved["counts"]), Strikes(**saved["open"])
        self._log.logged = saved["logged"]
        self._step = saved["step"]

    def _draw(self, covers: Sequence[Cover]) -> None:
        self._active = []
        for cover in covers:
            state = self.states[cover.fault.name, cover.kind]
            self._active += strikes_at(cover, self.ranks, self._step, self._attempt, state)
        self.drawn_now += sum(strike.drawn for strike in self._active)

    def _cover_of(self, cover: Cover, memory: Memory) -> Cover:
        """A fault's cover in a space of memory: of a kind of optimizer state its own, with a state of its own."""
        if memory.kind is None:
            return cover
        name = cover.fault.name
        key = (name, memory.kind, tuple((start, block.shape[1], block.dtype) for start, block in memory.blocks))
        if key not in self._kinds:
            layout = self.layout.retyped(memory.blocks)
            self._kinds[key] = Cover.of(cover.fault, layout, cover.seed, memory.kind, cover.separate)
            if (name, memory.kind) not in self.states:
                self.states[name, memory.kind] = cover.fault.model.init(layout, self.ranks)
        return self._kinds[key]
