"""A stale shard: a range of the gradient, or of memory, is that of some steps ago."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from paftbench.errors import Refused
from paftbench.faults import Changed, DenseFault, Draws, Slice
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

    def count(self, n: int, draws: Draws) -> int:
        return 1 if draws.step >= self.delay and round(self.degree * n) else 0

    def observe(self, grad_N: Tensor, where: Slice, state: dict[str, Tensor], draws: Draws) -> None:
        self._past(where, state, draws, draws.step).copy_(grad_N)

    def change(self, grad_N: Tensor, where: Slice, state: dict[str, Tensor], draws: Draws) -> Changed:
        # Every slice draws the same place anew, in the fault's own space, and takes its share of the shard.
        length = round(self.degree * where.size)
        first = int(draws.fresh().integers(0, where.size - length + 1)) - where.offset
        low, high = max(first, 0), min(first + length, where.elements)
        if low >= high:
            return Changed(0, (), struck=0)
        before_N = grad_N.clone()
        grad_N[low:high] = self._past(where, state, draws, draws.step - self.delay)[low:high].to(grad_N)
        return Changed.between(before_N, grad_N, where, struck=high - low)

    def _past(self, where: Slice, state: dict[str, Tensor], draws: Draws, step: int) -> Tensor:
        """The slice as it was at a step: the last `delay` of them and this one take turns in the rows of the past."""
        return state["past"][draws.row, step % (self.delay + 1), where.start : where.start + where.elements]
