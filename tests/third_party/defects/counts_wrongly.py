"""A dense fault with a defect: it reports every element as changed, and changes half of them."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from torch import Tensor

from paftbench.faults import Changed, DenseFault, Draws, Slice


@dataclass(frozen=True, kw_only=True)
class HalfNegated(DenseFault):
    """The first half of each parameter changes its sign while `degree` is not 0."""

    name = "half_negated"
    units: ClassVar[Mapping[str, tuple[float, float]]] = {"on": (0.0, 1.0)}
    deterministic = True

    unit: str = "on"

    def change(self, grad_N: Tensor, where: Slice, state: dict[str, Tensor], draws: Draws) -> Changed:
        before_N, first = grad_N.clone(), 0
        for _, _, elements in where.parts:
            grad_N[first : first + (elements + 1) // 2].neg_()
            first += elements
        return replace(Changed.between(before_N, grad_N, where), elements=grad_N.numel())
