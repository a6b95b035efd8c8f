"""The realised noise-to-signal ratio of a step: gradients as ranks got them, against what they would have got.

Shapes: L = ranks hosted here, W = world size, n = elements of a block or piece, N = of a chunk.
"""

from collections.abc import Iterator, Sequence
from math import inf, isnan

import torch
from torch import Tensor

from paftbench import sums
from paftbench.ranks.axis import Ranks
from paftbench.step.metrics import norm, root_mean

Blocks = Sequence[tuple[int, Tensor]]


class Realised:
    """Collects one step's gradients before and after strikes.

    Strikes on one element are added as they are: two that cancel are no noise. What a strike on a contribution changed
    reaches every rank with weight 1/W, as the mean would pass it on. Strikes on memory are no part of it.
    """

    def __init__(self, ranks: Ranks) -> None:
        self._ranks = ranks
        self._clean: dict[int, Tensor] = {}
        self._changed: dict[int, Tensor] = {}

    def contributed(self, pieces: Blocks, before: Sequence[Tensor]) -> None:
        """Add one hosted rank's contribution: pieces [n] by flat start, and their values before the strikes."""
        for (start, after_n), before_n in zip(pieces, before, strict=True):
            clean_n = before_n.to(torch.float64)
            for sums_of, value_n in ((self._clean, clean_n), (self._changed, _change(after_n.double(), clean_n))):
                sums_of[start] = sums_of[start] + value_n if start in sums_of else value_n

    def ratio(self, gradients: Blocks, before: Sequence[Tensor] | None, signal: float) -> float:
        """RMS over all W ranks of the L2 norm of what strikes changed, over the L2 norm of the unstruck mean.

        `gradients` are the received blocks [L, n] by flat start, `before` the same before the strikes on them, None
        where none was due here. `signal`: the norm of the mean where no contribution was struck. Every process must
        call it.
        """
        shared = {start: self._mean(sum_n) for start, sum_n in self._changed.items()}
        if self._clean:
            signal = norm([self._mean(sum_n) for sum_n in self._clean.values()])
        common = [shared[start] for start, _ in gradients] if shared else None
        after = [block for _, block in gradients]
        noise_L = sums.squares(self._errors(after, before, common))
        noise = root_mean(noise_L, self._ranks)
        if noise == 0.0:
            return 0.0
        return noise / signal if signal else inf

    def _mean(self, sum_n: Tensor) -> Tensor:
        return (self._ranks.total(sum_n) / self._ranks.world_size)[None]

    def _errors(
        self, after: Sequence[Tensor], before: Sequence[Tensor] | None, common: Sequence[Tensor] | None
    ) -> Iterator[Tensor]:
        if before is None:
            rows = len(self._ranks.local)
            yield from (chunk_1N.repeat(rows, 1) for chunk_1N in sums.chunks(common or ()))
            return
        shared = None if common is None else sums.chunks(common)
        for after_LN, before_LN in zip(sums.chunks(after), sums.chunks(before), strict=True):
            error_LN = _change(after_LN, before_LN)
            yield error_LN if shared is None else error_LN.add_(next(shared))


def _change(after_N: Tensor, before_N: Tensor) -> Tensor:
    """after - before in float64, 0 for what did not change: an infinity has no distance to itself."""
    change_N = after_N - before_N
    if isnan(float(change_N.sum())):
        same_N = (after_N == before_N) | (after_N.isnan() & before_N.isnan())
        change_N.masked_fill_(same_N, 0.0)
    return change_N
