"""A dense fault with a defect: it reports every element as changed, and changes half of them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from paftbench.faults import DenseFault, Draws


@dataclass(frozen=True, kw_only=True)
class HalfNegated(DenseFault):
    """The first half of each parameter changes its sign while `degree` is not 0."""

    name = "half_negated"
    units: ClassVar[Mapping[str, tuple[float, float]]] = {"on": (0.0, 1.0)}
    deterministic = True

    unit: str = "on"

    def change(self, grad_N: Tensor, start: int, state: dict[str, Tensor], draws: Draws) -> int:
        first = 0
        for _, _, elements in draws.parts:
            grad_N[first : first + (elements + 1) // 2].neg_()
            first += elements
        return grad_N.numel()
