"""The injection log's rows, one per strike; built in batches when somebody asks, so that striking stays cheap."""

from collections.abc import Collection, Iterator, Sequence
from itertools import islice
from typing import Any

import torch
from torch import Tensor

from paftbench.bits import FORMATS, as_hex, as_integers
from paftbench.faults.strikes import LogEntry, Strike, Touched
from paftbench.ranks.layout import Layout

ROW_CAP = 200_000
VALUES = ("bit", "bits_before", "bits_after", "value_before", "value_after", "norm", "elements")

Row = dict[str, Any]


class InjectionLog:
    """Settled strikes on their way to the log; after `ROW_CAP` rows in all no more are built."""

    def __init__(self, layout: Layout) -> None:
        self.logged = 0
        self._layout = layout
        self._waiting: list[Strike] = []

    def add(self, strike: Strike) -> None:
        """Note a settled strike."""
        if self.logged < ROW_CAP:
            self._waiting.append(strike)

    def drain(self, but: Collection[Strike] = ()) -> list[Row]:
        """The rows since the last call, in the order of their strikes, `but` for those of some that have to wait."""
        waiting = [strike for strike in self._waiting if strike not in but]
        self._waiting = [strike for strike in self._waiting if strike in but]
        values = _values([piece for strike in waiting for piece in strike.touched])
        rows = (self._row(strike, entry) for strike in waiting for entry in strike.entries(values))
        kept = list(islice(rows, ROW_CAP - self.logged))
        self.logged += len(kept)
        return kept

    def _row(self, strike: Strike, entry: LogEntry) -> Row:
        slot = None if entry.flat is None else self._layout.at(entry.flat)
        fault, kind = strike.cover.fault, strike.cover.kind
        name = slot and slot.name
        if kind is not None:
            name = f"{name or '*'}:{kind}"
        place: Row = {
            "step": strike.draws.step, "attempt": strike.attempt, "fault": fault.name, "rank": strike.draws.rank,
            "site": str(fault.site), "parameter": name,
            "index": None if slot is None or entry.flat is None else entry.flat - slot.start,
            "landed": entry.landed and not strike.discarded,
        }  # fmt: skip
        return {**place, **dict.fromkeys(VALUES), **entry.values}


def _values(pieces: Sequence[Touched]) -> dict[int, Iterator[Row]]:
    """Bits and values of touched pieces, by the piece's identity: one conversion for all pieces of a dtype."""
    found: dict[int, Iterator[Row]] = {}
    for dtype in {piece.before_K.dtype for piece in pieces}:
        same = [piece for piece in pieces if piece.before_K.dtype == dtype]
        rows = _value_rows(torch.cat([p.before_K for p in same]), torch.cat([p.after_K for p in same]))
        for piece in same:
            found[id(piece)] = iter(list(islice(rows, len(piece.before_K))))
    return found


def _value_rows(before_K: Tensor, after_K: Tensor) -> Iterator[Row]:
    mask = (1 << FORMATS[before_K.dtype].width) - 1
    flips = torch.bitwise_xor(as_integers(before_K), as_integers(after_K)).tolist()
    columns = zip(
        flips, as_hex(before_K), as_hex(after_K), before_K.double().tolist(), after_K.double().tolist(), strict=True
    )
    for flip, hex_before, hex_after, before, after in columns:
        yield {
            "bit": _bit_numbers(flip & mask), "bits_before": hex_before, "bits_after": hex_after,
            "value_before": before, "value_after": after,
        }  # fmt: skip


def _bit_numbers(flipped: int) -> int | list[int] | None:
    """The flipped bit; a list of them when there are several; none when the bits stayed the same."""
    numbers = [bit for bit in range(flipped.bit_length()) if flipped >> bit & 1]
    return numbers[0] if len(numbers) == 1 else (numbers or None)
