"""One strike of a known size on one rank at one step: what the oracles of single strikes are about."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from paftbench.faults import SparseFault
from paftbench.faults.draws import Draws
from paftbench.faults.fault import Fault
from paftbench.faults.schedules import Steps
from paftbench.ranks.sites import Site

DELTA = 0.375


@dataclass(frozen=True, kw_only=True)
class Nudge(SparseFault):
    """Add `degree` to one element: a fault model as an outsider writes it."""

    name = "nudge"
    units: ClassVar[Mapping[str, tuple[float, float]]] = {"size": (0.0, 1e38)}
    unit: str = "size"

    def count(self, n: int, draws: Draws) -> int:
        return 1

    def change(self, value_K: Tensor, draws: Draws) -> Tensor:
        return value_K + self.degree


def nudge(size: float = DELTA, site: Site = Site.RESULT, rank: int = 1, at: int = 2) -> Fault:
    return Fault(name="nudge", model=Nudge(degree=size), site=site, ranks=(rank,), schedule=Steps(steps=(at,)))
