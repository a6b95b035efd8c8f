"""What an optimizer makes of a change in its gradient: the link from drifted parameters back to gradient noise.

Shapes: L = ranks hosted here, n = elements of a block.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from paftbench.replicas import Replicas


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
    def of(cls, optimizer: torch.optim.Optimizer) -> "Response":
        """The response of an optimizer's last update; `ValueError` for one whose arithmetic is another."""
        group = optimizer.param_groups[0]
        rate = float(group["lr"])
        if isinstance(optimizer, torch.optim.SGD) and not (group["nesterov"] or group["dampening"]):
            return cls(rate=rate, momentum=float(group["momentum"]), weight_decay=float(group["weight_decay"]))
        if isinstance(optimizer, torch.optim.Adam | torch.optim.AdamW) and not group["amsgrad"]:
            beta = float(group["betas"][0])
            return cls(rate=rate / (1.0 - beta ** steps_of(optimizer)), momentum=beta, gain=1.0 - beta)
        raise ValueError(
            f"optimizer {type(optimizer).__name__}: how it turns noise into drift is not known; known are SGD without"
            " nesterov and dampening, and Adam and AdamW without amsgrad"
        )


def steps_of(optimizer: torch.optim.Optimizer) -> int:
    """How many updates Adam has counted, 1 before the first."""
    return max((int(state["step"]) for state in optimizer.state.values() if "step" in state), default=1)


def scales(replicas: Replicas) -> list[Tensor] | None:
    """Adam's sqrt(v / (1 - beta2^t)) + eps, [L, n] per block; None for SGD and what is not known."""
    group = replicas.optimizer.param_groups[0]
    if not isinstance(replicas.optimizer, torch.optim.Adam | torch.optim.AdamW):
        return None
    correction = 1.0 - float(group["betas"][1]) ** steps_of(replicas.optimizer)
    found = []
    for _, owner in replicas.owners:
        second = replicas.optimizer.state.get(owner, {}).get("exp_avg_sq")
        block = replicas.rows(torch.zeros_like(owner) if second is None else second)
        found.append((block / correction).sqrt_().add_(float(group["eps"])))
    return found
