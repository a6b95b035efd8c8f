"""What an optimizer makes of a change in its gradient: the link from drifted parameters back to gradient noise.

Shapes: L = ranks hosted here, n = elements of a block.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from paftbench.errors import Refused
from paftbench.ranks.replicas import Replicas


@dataclass(frozen=True, kw_only=True)
class Response:
    """b <- momentum b + gain g (+ weight_decay of the parameters), x <- x - rate b / scale, per element.

    SGD has gain 1 and scale 1. Adam's first moment has gain 1 - beta1, and its rate holds the bias correction; its
    scale, the root of the second moment, is an element's own (`scales`) and taken as constant from one synchronisation
    to the next. The decay of Adam and AdamW is left out: it moves differences by about lr * weight_decay of themselves.
    """

    rate: float
    momentum: float
    gain: float = 1.0
    weight_decay: float = 0.0

    @classmethod
    def of(cls, optimizer: torch.optim.Optimizer, group: dict[str, Any]) -> "Response":
        """The response of a parameter group's last update; `ValueError` for one whose arithmetic is another."""
        rate = float(group["lr"])
        if isinstance(optimizer, torch.optim.SGD) and not (group["nesterov"] or group["dampening"]):
            return cls(rate=rate, momentum=float(group["momentum"]), weight_decay=float(group["weight_decay"]))
        if isinstance(optimizer, torch.optim.Adam | torch.optim.AdamW) and not group["amsgrad"]:
            beta = float(group["betas"][0])
            # The first moment's bias correction divides each update: taken into the rate, the recursion is SGD's.
            return cls(rate=rate / (1.0 - beta ** steps_of(optimizer, group)), momentum=beta, gain=1.0 - beta)
        raise Refused(
            f"optimizer {type(optimizer).__name__}: how it turns noise into drift is not known; known are SGD without"
            " nesterov and dampening, and Adam and AdamW without amsgrad"
        )


@dataclass(frozen=True, kw_only=True)
class GroupResponse:
    """A parameter group by its number, with its share of the model's elements and its response."""

    number: int
    share: float
    response: Response


def responses(replicas: Replicas) -> list[GroupResponse]:
    """Those of the groups that hold parameters of the model, in the optimizer's order; errors as `Response.of`."""
    elements: dict[int, int] = {}
    for owner, number in zip(replicas.owners, _groups(replicas), strict=True):
        elements[number] = elements.get(number, 0) + replicas.rows(owner[1]).shape[1]
    optimizer = replicas.optimizer
    return [
        GroupResponse(
            number=number,
            share=elements[number] / replicas.layout.size,
            response=Response.of(optimizer, optimizer.param_groups[number]),
        )
        for number in sorted(elements)
    ]


def steps_of(optimizer: torch.optim.Optimizer, group: dict[str, Any]) -> int:
    """How many updates Adam has counted for a group, 1 before the first."""
    states = (optimizer.state.get(parameter, {}) for parameter in group["params"])
    return max((int(state["step"]) for state in states if "step" in state), default=1)


def scales(replicas: Replicas) -> list[Tensor] | None:
    """Adam's sqrt(v / (1 - beta2^t)) + eps, [L, n] per block; None for SGD and what is not known."""
    optimizer = replicas.optimizer
    if not isinstance(optimizer, torch.optim.Adam | torch.optim.AdamW):
        return None
    corrections = [1.0 - float(group["betas"][1]) ** steps_of(optimizer, group) for group in optimizer.param_groups]
    found = []
    for (_, owner), number in zip(replicas.owners, _groups(replicas), strict=True):
        second = optimizer.state.get(owner, {}).get("exp_avg_sq")
        block = replicas.rows(torch.zeros_like(owner) if second is None else second)
        found.append((block / corrections[number]).sqrt_().add_(float(optimizer.param_groups[number]["eps"])))
    return found


def _groups(replicas: Replicas) -> list[int]:
    """The number of each owner's parameter group."""
    groups = enumerate(replicas.optimizer.param_groups)
    number_of = {id(parameter): number for number, group in groups for parameter in group["params"]}
    return [number_of[id(owner)] for _, owner in replicas.owners]
