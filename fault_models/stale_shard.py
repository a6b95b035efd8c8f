"""A stale shard: a range of the gradient, or of memory, is that of some steps ago."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from paftbench.bits import as_integers
from paftbench.errors import Refused
from paftbench.faults.draws import Draws
from paftbench.faults.model import DenseFault
from paftbench.ranks.axis import Ranks
from paftbench.ranks.layout import Layout


@dataclass(frozen=True, kw_only=True)
class StaleShard(DenseFault):
    """A contiguous `fraction` of the flat index space keeps the value it had `delay` steps earlier.

    What is kept is what the aggregation gave (at site `result`), what this rank contributed (`contribution`) or what
    the optimizer left in its memory (`parameter`, `optimizer_state`; zeros while there was no state), before this
    fault struck it. One strike is one such event on one rank; the first `delay` steps have no past and no strike.
    """

    name = "stale_shard"
    units: ClassVar[Mapping[str, tuple[float, float]]] = {"fraction": (0.0, 1.0)}

    unit: str = "fraction"
    delay: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.delay < 1:
            raise Refused(f"delay (how many steps old the shard is) must be >= 1, got {self.delay}")

    def init(self, layout: Layout, ranks: Ranks) -> dict[str, Tensor]:
        dtype = torch.float64 if torch.float64 in layout.dtypes else torch.float32
        return {"past": torch.zeros((len(ranks.local), self.delay + 1, layout.size), dtype=dtype)}

    def expected(self, size: int, step: int, dtype: torch.dtype) -> float:
        return 1.0 if step >= self.delay and round(self.degree * size) else 0.0

    def events(self, n: int, draws: Draws) -> int:
        return 1 if draws.step >= self.delay and round(self.degree * n) else 0

    def observe(self, grad_N: Tensor, start: int, state: dict[str, Tensor], draws: Draws) -> None:
        self._past(state, draws, draws.step)[start : start + grad_N.numel()] = grad_N

    def change(self, grad_N: Tensor, start: int, state: dict[str, Tensor], draws: Draws) -> int:
        length = round(self.degree * draws.size)
        first = int(draws.fresh().integers(0, draws.size - length + 1))
        low, high = max(first, draws.offset), min(first + length, draws.offset + grad_N.numel())
        draws.struck = max(0, high - low)
        if not draws.struck:
            return 0
        here = slice(low - draws.offset, high - draws.offset)
        old = self._past(state, draws, draws.step - self.delay)[start : start + grad_N.numel()][here]
        old = old.to(grad_N)  # the past is kept on the CPU
        changed = int(torch.count_nonzero(as_integers(old) != as_integers(grad_N[here])))
        grad_N[here] = old
        return changed

    def _past(self, state: dict[str, Tensor], draws: Draws, step: int) -> Tensor:
        return state["past"][draws.row, step % (self.delay + 1)]
