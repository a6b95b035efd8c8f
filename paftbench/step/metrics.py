"""What is measured of a step: how far replicas differ, how long its parts take.

Shapes: L = ranks hosted here, n = elements of a block. All sums are `paftbench.sums`.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import sqrt

import torch
from torch import Tensor

from paftbench import sums
from paftbench.mitigations.step import Decision
from paftbench.ranks.axis import Ranks, row_sum


def spread(blocks: Sequence[Tensor], ranks: Ranks) -> float:
    """RMS over all W ranks of the L2 distance to the ranks' mean: divergence of parameters, inconsistency of gradients.

    Every process must call it.
    """
    if ranks.group is None and all(_rows_equal(block_Ln) for block_Ln in blocks):
        return 0.0
    # Chunk by chunk: a copy of the whole model in float64 would be as large as the training itself.
    distances = (x_LN.sub_(ranks.total(row_sum(x_LN)) / ranks.world_size) for x_LN in sums.chunks(blocks))
    return root_mean(sums.squares(distances), ranks)


def root_mean(squares_L: Sequence[float], ranks: Ranks) -> float:
    """Root of the mean over all W ranks of a number that each has; every process must call it."""
    # A place for each rank, added over processes: then all of them hold the same W numbers, and add those in one order.
    squares_W = torch.zeros(ranks.world_size, dtype=torch.float64)
    if squares_L:
        squares_W[list(ranks.local)] = torch.tensor(squares_L, dtype=torch.float64)
    return sqrt(sums.total(ranks.total(squares_W).tolist()) / ranks.world_size)


def _rows_equal(block_Ln: Tensor) -> bool:
    """Equal and finite: infinities have no distance, in any placement."""
    equal = all(torch.equal(block_Ln[row], block_Ln[0]) for row in range(1, len(block_Ln)))
    return equal and bool(torch.isfinite(block_Ln[0]).all())


def norm(blocks: Sequence[Tensor], row: int = 0) -> float:
    """L2 norm of one row of the blocks."""
    return sums.norms([block[row : row + 1] for block in blocks])[0] if blocks else 0.0


def all_finite(blocks: Sequence[Tensor]) -> bool:
    """Whether no element of any row is NaN or infinite."""
    return all(bool(torch.isfinite(block).all()) for block in blocks)


@dataclass(kw_only=True)
class Measured:
    """What one step showed; None where it was not measured."""

    grad_norm: float | None = None
    divergence: float | None = None
    divergence_before: float | None = None
    inconsistency: float | None = None
    nsr: float | None = None
    synced: bool = False
    period: int | None = None
    decision: Decision | None = None


class Clock:
    """Seconds of a step by section; time inside a nested section counts for the inner one only."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._open: list[str] = []
        self._since = 0.0

    @contextmanager
    def section(self, name: str) -> Iterator[None]:
        """Time what happens inside as `name`."""
        self._turn()
        self._open.append(name)
        try:
            yield
        finally:
            self._turn()
            self._open.pop()

    def take(self) -> dict[str, float]:
        """The sections since the last call."""
        seconds, self.seconds = self.seconds, {}
        return seconds

    def _turn(self) -> None:
        # What has passed belongs to the innermost open section; entering and leaving both close an account.
        now = time.perf_counter()
        if self._open:
            self.seconds[self._open[-1]] = self.seconds.get(self._open[-1], 0.0) + now - self._since
        self._since = now
