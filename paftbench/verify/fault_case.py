"""A fault model on trial, in one unit, dtype and setting. Shapes: T = steps, W = ranks, N = elements."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from paftbench.faults.contract import DenseFault, FaultModel
from paftbench.faults.draws import Draws
from paftbench.faults.fault import Fault
from paftbench.ranks.layout import Layout
from paftbench.ranks.sites import BUILT_SITES, Site
from paftbench.verify.promise import NotTried
from paftbench.verify.striking import Struck, gradients, layout_of, strike
from paftbench.verify.variants import built, label_of, variants

WORLD = 3
STEPS, MANY_STEPS = 3, 24  # many: for a fault that waits before it strikes
DEGREES = (0.02, 0.3, 1.0, 3.0, 30.0)  # tried in turn, until one strikes
ORDER = (torch.float32, torch.bfloat16, torch.float64, torch.float16)


@dataclass(frozen=True)
class FaultCase:
    """`cls` in one `unit` and dtype, `fields` set; the degree and the number of steps are such that it strikes."""

    cls: type[FaultModel]
    unit: str
    dtype: torch.dtype
    fields: Mapping[str, Any]

    @property
    def label(self) -> str:
        return ", ".join([self.unit, str(self.dtype).removeprefix("torch."), *label_of(self.fields)])

    @property
    def dense(self) -> bool:
        return issubclass(self.cls, DenseFault)

    @property
    def range(self) -> tuple[float, float]:
        """Legal degrees of the unit."""
        return self.cls.units[self.unit]

    @property
    def site(self) -> Site:
        legal = self.cls.sites & BUILT_SITES
        return Site.RESULT if Site.RESULT in legal else min(legal)

    @cached_property
    def layout(self) -> Layout:
        return layout_of(self.dtype)

    @cached_property
    def strength(self) -> tuple[float, int] | None:
        """The first degree, with the number of steps, at which every rank is struck at the last step."""
        low, high = self.range
        candidates = [degree for degree in DEGREES if low <= degree <= high] or [high]
        for steps in (STEPS, MANY_STEPS):
            for degree in dict.fromkeys([*candidates, high]):
                if all(self.drawn(degree, steps - 1, rank) for rank in range(WORLD)):
                    return degree, steps
        return None

    @property
    def degree(self) -> float:
        """`NotTried` for a model that strikes at no degree: a promise of its own says so."""
        if self.strength is None:
            raise NotTried("it strikes at no degree that was tried")
        return self.strength[0]

    @property
    def steps(self) -> int:
        return STEPS if self.strength is None else self.strength[1]

    def model(self, degree: float | None = None) -> FaultModel:
        """A fresh instance."""
        degree = self.degree if degree is None else degree
        model: FaultModel = built(self.cls, {**self.fields, "unit": self.unit, "degree": degree})
        return model

    def fault(self, degree: float | None = None, **own: Any) -> Fault:
        """The model as a fault on all ranks, at site `result` if that is legal, unless `own` says otherwise."""
        return Fault(**{"name": "tried", "site": self.site, "model": self.model(degree), **own})

    def gradients(self, steps: int | None = None, *, seed: int = 0) -> Tensor:
        """Standard normal gradients [T, W, N]."""
        return gradients(self.layout, steps=steps or self.steps, world_size=WORLD, seed=seed)

    def strike(self, fault: Fault | None = None, grads_TWN: Tensor | None = None, **how: Any) -> Struck:
        """Strike gradients for `steps` steps, in the way that `striking.strike` describes."""
        return strike([fault or self.fault()], self.layout, self.gradients() if grads_TWN is None else grads_TWN, **how)

    def drawn(self, degree: float, step: int, rank: int) -> int:
        """Strikes drawn for one rank at a step."""
        draws = Draws((0, "tried", 0, step, rank), step=step, rank=rank, row=0, dtype=self.dtype)
        return self.model(degree).count(self.layout.size, draws)


def fault_cases(cls: type[FaultModel], dtypes: Sequence[torch.dtype] = ORDER) -> Iterator[FaultCase]:
    """Every unit in every setting, in those of `dtypes` that the model declares and its settings allow."""
    for unit in cls.units:
        for values in variants(cls, skip=("degree", "unit")):
            for dtype in dtypes:
                if dtype in cls.dtypes:
                    yield FaultCase(cls, unit, dtype, values)
