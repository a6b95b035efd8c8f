"""Plugins without a defect, from which the others differ in one thing."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from paftbench.faults import Changed, DenseFault, Draws, Slice, SparseFault
from paftbench.mitigations import Mitigation, Step
from paftbench.ranks.axis import Ranks
from paftbench.workloads.quadratic import Quadratic


@dataclass(frozen=True, kw_only=True)
class Sparse(SparseFault):
    """Struck elements are multiplied by -2 or 3."""

    name = "sparse"
    units: ClassVar[Mapping[str, tuple[float, float]]] = {"per_element": (0.0, 1.0)}

    unit: str = "per_element"

    def change(self, value_K: Tensor, draws: Draws) -> Tensor:
        factor_K = torch.from_numpy(5 * draws.integers(0, 2) - 2)
        return value_K * factor_K.to(value_K)


@dataclass(frozen=True, kw_only=True)
class Dense(DenseFault):
    """Every element moves by a uniform number up to `degree`."""

    name = "dense"
    units: ClassVar[Mapping[str, tuple[float, float]]] = {"span": (0.0, 1e3)}

    unit: str = "span"

    def change(self, grad_N: Tensor, where: Slice, state: dict[str, Tensor], draws: Draws) -> Changed:
        before_N, first = grad_N.clone(), 0
        for part in where.parts:
            here = grad_N[first : first + part.elements]
            shift = torch.rand(part.elements, generator=draws.torch_generator(part.name, grad_N.device)) * self.degree
            here += shift.to(here.dtype)
            first += part.elements
        return Changed.between(before_N, grad_N, where)


@dataclass(frozen=True, kw_only=True)
class Negate(DenseFault):
    """Every element changes its sign; the degree switches it on."""

    name = "negate"
    units: ClassVar[Mapping[str, tuple[float, float]]] = {"on": (0.0, 1.0)}
    deterministic = True

    unit: str = "on"

    def change(self, grad_N: Tensor, where: Slice, state: dict[str, Tensor], draws: Draws) -> Changed:
        before_N = grad_N.clone()
        return Changed.between(before_N, grad_N.neg_(), where)


@dataclass(frozen=True, kw_only=True)
class Clip(Mitigation):
    """Clamps what arrives to `limit`."""

    name = "clip"
    limit: float = 1.0

    def on_gradients(self, step: Step) -> None:
        for grad_Ln in step.gradients:
            grad_Ln.clamp_(-self.limit, self.limit)


@dataclass(frozen=True, kw_only=True)
class Median(Mitigation):
    """The coordinate-wise median, which needs all rows."""

    name = "median"
    aggregates = True

    def aggregate(self, grad_Ln: Tensor, ranks: Ranks) -> Tensor:
        return ranks.gather(grad_Ln).median(0, keepdim=True).values


@dataclass(frozen=True, kw_only=True)
class Bowl(Quadratic):
    """The quadratic bowl with `noise`."""

    name: ClassVar[str] = "bowl"

    dim: int = 50
    noise: float = 1.0


GOOD = (Sparse, Dense, Negate, Clip, Median, Bowl)
