"""The injection log's rows, one per strike; built in batches when somebody asks, so that striking stays cheap."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from paftbench.bits import FORMATS, as_hex, as_integers
from paftbench.faults.strikes import Strike
from paftbench.ranks.layout import Layout

ROW_CAP = 200_000
VALUES = ("bit", "bits_before", "bits_after", "value_before", "value_after", "norm", "elements")

Row = dict[str, Any]


class InjectionLog:
    """Settled strikes on their way to the log; after `ROW_CAP` rows in all no more are built."""

    def __init__(self, layout: Layout) -> None:
        self.logged = 0
        self._layout = layout
        self._waiting: list[tuple[Strike, int]] = []

    def add(self, strike: Strike, lost: int) -> None:
        """Note a settled strike, `lost` parts of which fell on what is not there: unused parameters."""
        if self.logged < ROW_CAP:
            self._waiting.append((strike, lost))

    def drain(self) -> list[Row]:
        """The rows since the last call, in the order of their strikes."""
        waiting, self._waiting = self._waiting, []
        values = _sparse_values([strike for strike, _ in waiting if strike.is_sparse])
        rows: list[Row] = []
        for strike, lost in waiting:
            if self.logged >= ROW_CAP:
                break
            made = self._sparse(strike, values) if strike.is_sparse else self._dense(strike, lost)
            for row in made:
                if self.logged >= ROW_CAP:
                    break
                self.logged += 1
                rows.append(row)
        return rows

    def _sparse(self, strike: Strike, values: dict[int, Iterator[Row]]) -> Iterator[Row]:
        for piece in sorted(strike.touched, key=lambda piece: piece[0]):
            low, before_K, _ = piece
            for k, row in zip(range(low, low + len(before_K)), values[id(piece)], strict=True):
                if not len(strike.lost_K) or not strike.lost_K[k]:
                    yield self._row(strike, int(strike.flat_K[k]), True, row)
        if len(strike.lost_K):
            for index in strike.flat_K[strike.lost_K]:
                yield self._row(strike, int(index), False, {})

    def _dense(self, strike: Strike, lost: int) -> Iterator[Row]:
        elements = sum(seen.changed for seen in strike.seen)
        if strike.landed:
            yield self._row(strike, None, True, {"norm": strike.norm, "elements": elements})
        if lost:
            yield self._row(strike, None, False, {"elements": lost})

    def _row(self, strike: Strike, index: int | None, landed: bool, values: Row) -> Row:
        slot = None if index is None else self._layout.at(index)
        fault, kind = strike.cover.fault, strike.cover.kind
        name = slot and slot.name
        if kind is not None:
            name = f"{name or '*'}:{kind}"
        place: Row = {
            "step": strike.step, "attempt": strike.attempt, "fault": fault.name, "rank": strike.rank,
            "site": str(fault.site), "parameter": name,
            "index": None if slot is None or index is None else index - slot.start, "landed": landed,
        }  # fmt: skip
        return {**place, **dict.fromkeys(VALUES), **values}


def _sparse_values(strikes: list[Strike]) -> dict[int, Iterator[Row]]:
    """Bits and values of every touched piece, by the piece's identity: one conversion for all pieces of a dtype."""
    pieces = [piece for strike in strikes for piece in strike.touched]
    found: dict[int, Iterator[Row]] = {}
    for dtype in {before_K.dtype for _, before_K, _ in pieces}:
        same = [piece for piece in pieces if piece[1].dtype == dtype]
        rows = iter(_value_rows(torch.cat([p[1] for p in same]), torch.cat([p[2] for p in same])))
        for piece in same:
            found[id(piece)] = iter([next(rows) for _ in range(len(piece[1]))])
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
