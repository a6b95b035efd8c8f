"""Values that are stuck: what a broken register or a cleared buffer hands on."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from typing import ClassVar

import torch
from torch import Tensor

from paftbench.faults import Draws, SparseFault


@dataclass(frozen=True, kw_only=True)
class StuckAt(SparseFault):
    """Struck elements read `value`, whatever they were."""

    name = "stuck_at"
    units: ClassVar[Mapping[str, tuple[float, float]]] = {"per_element": (0.0, 1.0)}

    unit: str = "per_element"
    value: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isfinite(self.value):
            raise ValueError(f"value (what a struck element reads) must be a finite number, got {self.value!r}")

    def change(self, value_K: Tensor, draws: Draws) -> Tensor:
        return torch.full_like(value_K, self.value)
