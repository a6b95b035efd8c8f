"""All ranks' parameters at the end of a run, compared.

Shapes: W = ranks, n = elements of a parameter.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from paftbench.ranks.axis import Ranks
from paftbench.step.metrics import spread

Parameters = Mapping[str, Tensor]


@dataclass(frozen=True, kw_only=True)
class ReplicaDifference:
    """The largest difference of one element between two ranks."""

    size: float
    parameter: str
    ranks: tuple[int, int]
    differing: int
    parameters: int

    def __str__(self) -> str:
        low, high = self.ranks
        return (
            f"parameter {self.parameter!r} differs by {self.size:.4g} between ranks {low} and {high} "
            f"({self.differing} of {self.parameters} parameters differ)"
        )


def largest_difference(replicas: Sequence[Parameters]) -> ReplicaDifference:
    """Where replicas are furthest apart. NaN is equal to NaN and infinitely far from any number."""
    size, parameter, ranks, differing = 0.0, next(iter(replicas[0]), ""), (0, 0), 0
    for name in replicas[0]:
        apart, pair = _furthest(_rows(replicas, name))
        differing += apart > 0.0
        if apart > size:
            size, parameter, ranks = apart, name, pair
    return ReplicaDifference(
        size=size, parameter=parameter, ranks=ranks, differing=differing, parameters=len(replicas[0])
    )


def root_mean_square(replicas: Sequence[Parameters]) -> float:
    """RMS over ranks of the L2 distance to the mean parameters: the divergence of a run."""
    rows = [_rows(replicas, name) for name in replicas[0]]
    # Left out where all are equal: infinities that are have no distance in numbers.
    apart = [rows_Wn for rows_Wn in rows if not bool((rows_Wn == rows_Wn[0]).all())]
    return spread(apart, Ranks.virtual(len(replicas)))


def _rows(replicas: Sequence[Parameters], name: str) -> Tensor:
    return torch.stack([replica[name].to(torch.float64).reshape(-1) for replica in replicas])


def _furthest(rows_Wn: Tensor) -> tuple[float, tuple[int, int]]:
    if rows_Wn.shape[1] == 0:
        return 0.0, (0, 0)
    # Least and greatest over ranks are furthest apart. NaN would be both: it is left out, and judged by itself.
    finite_Wn = torch.where(rows_Wn.isnan(), torch.zeros_like(rows_Wn), rows_Wn)
    mixed_n = rows_Wn.isnan().any(0) & ~rows_Wn.isnan().all(0)
    low_n, high_n = finite_Wn.min(0), finite_Wn.max(0)
    # The difference of two equal infinities is NaN, and they are not apart.
    apart_n = (high_n.values - low_n.values).nan_to_num(nan=0.0, posinf=math.inf)
    apart_n[mixed_n] = math.inf
    element = int(apart_n.argmax())
    if bool(mixed_n[element]):
        nans = rows_Wn[:, element].isnan()
        pair = (int(nans.int().argmax()), int((~nans).int().argmax()))
    else:
        pair = (int(low_n.indices[element]), int(high_n.indices[element]))
    return float(apart_n[element]), (min(pair), max(pair))
