"""Faults applied to gradients, verified and logged.

Shapes: N = elements of a piece, K = strikes. A piece is a contiguous run of whole parameters of one rank's gradient.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from paftbench.bits import FORMATS, as_hex, as_integers
from paftbench.drawn import Cover, Seen, Strike, strikes_at
from paftbench.faults import DenseFault, Fault, Site, SparseFault
from paftbench.layout import Layout, Slot
from paftbench.ranks import Ranks
from paftbench.runs import Piece, Run, plan_runs, put_back

ROW_CAP = 200_000

Row = dict[str, Any]


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

    A step is `begin`, any number of `strike` (each piece of each site once), `end`. Rows for the injection log gather
    in `rows`, up to `ROW_CAP`; past it counts go on exactly. `noise_sq` is the squared L2 norm of what the last step's
    strikes changed on the ranks hosted here, by site. `separate`: a struck parameter may turn out unused after
    all, so dense faults strike parameters one by one.
    """

    def __init__(
        self, faults: Sequence[Fault], layout: Layout, ranks: Ranks, *, seed: int, separate: bool = False
    ) -> None:
        self.layout = layout
        self.ranks = ranks
        self.covers = [Cover.of(fault, layout, seed) for fault in faults]
        self.states = {cover.fault.name: cover.fault.model.init(layout, ranks) for cover in self.covers}
        self.separate = separate
        self.counts = Strikes()
        self.drawn_now = 0
        self.rows: list[Row] = []
        self.logged = 0
        self.noise_sq: dict[Site, float] = {}
        self._active: list[Strike] = []
        self._runs: dict[tuple[str, tuple[tuple[int, int], ...]], list[Run]] = {}

    @property
    def sites(self) -> frozenset[Site]:
        """The sites that any fault of the trial may strike."""
        return frozenset(cover.fault.site for cover in self.covers)

    def begin(self, step: int, attempt: int = 0) -> None:
        """Draw the strikes of a step (or of its re-execution number `attempt`) for the ranks hosted here."""
        self.noise_sq = {}
        self._active = [strike for cover in self.covers for strike in strikes_at(cover, self.ranks, step, attempt)]
        self.drawn_now = sum(strike.drawn for strike in self._active)

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

    def end(self, unused: Sequence[Slot] = ()) -> None:
        """Close the step: strikes on parameters that no rank used did not land, every other one must have.

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
                site = strike.cover.fault.site
                self.noise_sq[site] = self.noise_sq.get(site, 0.0) + strike.noise_sq()
                self._log(strike, lost)
        self._active = []

    def drain(self) -> list[Row]:
        """The rows since the last call."""
        rows, self.rows = self.rows, []
        return rows

    def state_dict(self) -> dict[str, Any]:
        return {"states": self.states, "counts": vars(self.counts).copy(), "logged": self.logged}

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        self.states = saved["states"]
        self.counts = Strikes(**saved["counts"])
        self.logged = saved["logged"]

    def _strike_sparse(self, model: SparseFault, strike: Strike, pieces: Sequence[Piece]) -> None:
        for start, grad_N in pieces:
            low, high = np.searchsorted(strike.flat_K, (start, start + grad_N.numel()))
            if low == high:
                continue
            index_K = torch.from_numpy(strike.flat_K[low:high] - start).to(grad_N.device)
            before_K = grad_N[index_K]
            after_K = model.change(before_K.clone(), strike.draws.among(strike.drawn, np.arange(low, high)))
            grad_N[index_K] = after_K
            strike.touched.append((low, before_K.cpu(), after_K.cpu()))

    def _strike_dense(self, model: DenseFault, strike: Strike, pieces: Sequence[Piece]) -> None:
        state = self.states[strike.cover.fault.name]
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
        model, state = strike.cover.fault.model, self.states[strike.cover.fault.name]
        for slot in unused:
            offset = strike.cover.offset_of(slot)
            if isinstance(model, DenseFault) and offset is not None:
                strike.draws.offset = offset
                strike.draws.parts = [(slot.start, slot.stop - slot.start)]
                model.observe(torch.zeros(slot.stop - slot.start, dtype=slot.dtype), slot.start, state, strike.draws)

    def _runs_of(self, cover: Cover, pieces: Sequence[Piece]) -> list[Run]:
        shape = tuple((start, grad_N.numel()) for start, grad_N in pieces)
        key = (cover.fault.name, shape)
        if key not in self._runs:
            self._runs[key] = plan_runs(cover, self.layout, shape, separate=self.separate)
        return self._runs[key]

    def _log(self, strike: Strike, lost: int) -> None:
        if not strike.is_sparse:
            elements = sum(seen.changed for seen in strike.seen)
            if strike.landed:
                self._add_row(strike, None, True, {"norm": strike.noise_sq() ** 0.5, "elements": elements})
            if lost:
                self._add_row(strike, None, False, {"elements": lost})
            return
        for low, before_K, after_K in sorted(strike.touched, key=lambda part: part[0]):
            room = max(0, ROW_CAP - self.logged)  # rows past the cap are not even built
            for k, values in enumerate(_value_rows(before_K[:room], after_K[:room]), start=int(low)):
                if not strike.lost_K[k]:
                    self._add_row(strike, int(strike.flat_K[k]), True, values)
        for index in strike.flat_K[strike.lost_K][: max(0, ROW_CAP - self.logged)]:
            self._add_row(strike, int(index), False, {})

    def _add_row(self, strike: Strike, index: int | None, landed: bool, values: Row) -> None:
        if self.logged >= ROW_CAP:
            return
        self.logged += 1
        slot = None if index is None else self.layout.at(index)
        fault = strike.cover.fault
        place: Row = {
            "step": strike.step, "attempt": strike.attempt, "fault": fault.name, "rank": strike.rank,
            "site": str(fault.site), "parameter": slot and slot.name,
            "index": None if slot is None or index is None else index - slot.start, "landed": landed,
        }  # fmt: skip
        blank = dict.fromkeys(("bit", "bits_before", "bits_after", "value_before", "value_after", "norm", "elements"))
        self.rows.append({**place, **blank, **values})


def _value_rows(before_K: Tensor, after_K: Tensor) -> list[Row]:
    form = FORMATS[before_K.dtype]
    mask = (1 << form.width) - 1
    flips = torch.bitwise_xor(as_integers(before_K), as_integers(after_K)).tolist()
    columns = zip(
        flips, as_hex(before_K), as_hex(after_K), before_K.double().tolist(), after_K.double().tolist(), strict=True
    )
    return [
        {
            "bit": _bit_numbers(flip & mask), "bits_before": hex_before, "bits_after": hex_after,
            "value_before": before, "value_after": after,
        }
        for flip, hex_before, hex_after, before, after in columns
    ]  # fmt: skip


def _bit_numbers(flipped: int) -> int | list[int] | None:
    """The flipped bit; a list of them when there are several; none when the bits stayed the same."""
    numbers = [bit for bit in range(flipped.bit_length()) if flipped >> bit & 1]
    return numbers[0] if len(numbers) == 1 else (numbers or None)
