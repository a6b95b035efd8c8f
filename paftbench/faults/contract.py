"""What a fault model is: the plugin contract, in two forms. Shapes: K = strikes, N = elements of a slice."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any, ClassVar

import torch
from torch import Tensor

from paftbench.errors import Refused
from paftbench.faults.changed import Changed
from paftbench.faults.draws import Draws
from paftbench.faults.slices import Slice
from paftbench.ranks.axis import Ranks
from paftbench.ranks.layout import Layout
from paftbench.ranks.sites import Site
from paftbench.suggest import did_you_mean

FLOATS = frozenset({torch.float64, torch.float32, torch.bfloat16, torch.float16})


@dataclass(frozen=True, kw_only=True)
class FaultModel:
    """What changes: subclass `SparseFault` or `DenseFault`; fields are the swept parameters.

    A model that makes sense on gradients only, or on memory only, says so in `sites`. At `optimizer_state` each kind of
    state is struck, and has a state of the model, of its own. One that draws nothing, so that it does the same under
    any seed, says `deterministic`.
    """

    plugin_kind: ClassVar[str] = "fault_models"
    name: ClassVar[str]
    units: ClassVar[Mapping[str, tuple[float, float]]]
    sites: ClassVar[frozenset[Site]] = frozenset(Site)
    dtypes: ClassVar[frozenset[torch.dtype]] = FLOATS
    deterministic: ClassVar[bool] = False
    watches: ClassVar[bool] = False  # whether it sees every gradient before the strikes

    degree: float = 0.0
    unit: str = ""

    def __post_init__(self) -> None:
        if self.unit not in self.units:
            raise Refused(f"unit {self.unit!r} is not one of {self.name}{did_you_mean(self.unit, self.units)}")
        low, high = self.units[self.unit]
        if not (isfinite(self.degree) and low <= self.degree <= high):
            raise Refused(f"degree ({self.unit}) must be within [{low:g}, {high:g}], got {self.degree!r}")

    def check(self, dtype: torch.dtype) -> None:
        """`ValueError` where the fields do not fit numbers of this type."""

    def init(self, layout: Layout, ranks: Ranks) -> dict[str, Tensor]:
        """State of the fault, one leading row per hosted rank; checkpointed by the injector."""
        return {}

    def count(self, n: int, draws: Draws) -> int:
        """Strikes drawn among `n` elements at this (step, rank): each element, or 1 for a fault that is one event."""
        return n if self.degree > 0 else 0

    def expected(self, size: int, step: int, dtype: torch.dtype) -> float:
        """Strikes expected on one rank at a step that the schedule chose, among `size` elements.

        Forecasts of long trials look at some steps only, and take it for constant between two on which it agrees.
        """
        return float(size) if self.degree > 0 else 0.0


class SparseFault(FaultModel):
    """A fault that strikes few elements: its cost is O(strikes), never a mask. What it changed is counted for it."""

    def rate(self, dtype: torch.dtype) -> float:
        """Probability that one element is struck."""
        return self.degree

    def count(self, n: int, draws: Draws) -> int:
        return int(draws.generator.binomial(n, self.rate(draws.dtype)))

    def change(self, value_K: Tensor, draws: Draws) -> Tensor:
        """The struck values; `value_K` itself stays as it is."""
        raise TypeError(f"fault model {self.name} does not define change()")

    def expected(self, size: int, step: int, dtype: torch.dtype) -> float:
        return size * self.rate(dtype)


class DenseFault(FaultModel):
    """A fault that strikes every element of the parameters it covers, or a range of them."""

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        cls.watches = cls.observe is not DenseFault.observe
        if hasattr(cls, "events") or cls.change.__annotations__.get("return") in (int, "int"):
            raise Refused(
                f"fault model {cls.__name__} is of an earlier contract: change(grad_N, where, state, draws) must"
                " return paftbench.faults.Changed(elements, squares), not an int, and events() is called count()"
            )

    def observe(self, grad_N: Tensor, where: Slice, state: dict[str, Tensor], draws: Draws) -> None:
        """See a slice before it is struck, at every step, scheduled or not."""

    def change(self, grad_N: Tensor, where: Slice, state: dict[str, Tensor], draws: Draws) -> Changed:
        """Strike the slice that begins at flat index `where.start` in place, and return what changed.

        `Changed.between` compares it with a copy of before. A sum that decides something must not hang on where the
        slice lies: `paftbench.sums` has such sums.
        """
        raise TypeError(f"fault model {self.name} does not define change()")
