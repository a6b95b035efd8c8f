"""A fault for the promises of mitigations: they are tried under errors too."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from paftbench.faults.contract import SparseFault
from paftbench.faults.draws import Draws
from paftbench.faults.fault import Fault
from paftbench.ranks.sites import Site


@dataclass(frozen=True, kw_only=True)
class Planted(SparseFault):
    """Struck elements are scaled by up to 2 (`scaled`) or become NaN (`lost`)."""

    name = "planted"
    units: ClassVar[Mapping[str, tuple[float, float]]] = {"scaled": (0.0, 1.0), "lost": (0.0, 1.0)}

    unit: str = "scaled"

    def change(self, value_K: Tensor, draws: Draws) -> Tensor:
        factor_K = torch.from_numpy(2 * draws.uniform()).to(value_K)
        return value_K * (factor_K if self.unit == "scaled" else float("nan"))


def planted(unit: str = "scaled", degree: float = 0.3) -> Fault:
    """The fault at site `result` on all ranks, so that the replicas part."""
    return Fault(name="planted", model=Planted(unit=unit, degree=degree), site=Site.RESULT)
