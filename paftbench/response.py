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
    to the next. AdamW's decoupled decay is left out: it moves differences by lr * weight_decay of themselves.
    """

    rate: float
    momentum: float
    gain: float = 1.0
    weight_decay: float = 0.0

    @classmethod
    def of(cls, optimizer: torch.optim.Optimizer, steps: int) -> "Response":
        """The response of an optimizer whose next update is its `steps`-th; `ValueError` for one that is not known."""
        group = optimizer.param_groups[0]
        rate = float(group["lr"])
        if "betas" in group:
            beta = float(group["betas"][0])
            return cls(rate=rate / (1.0 - beta**steps), momentum=beta, gain=1.0 - beta)
        if "momentum" in group:
            return cls(rate=rate, momentum=float(group["momentum"]), weight_decay=float(group["weight_decay"]))
        raise ValueError(f"optimizer {type(optimizer).__name__}: how it turns noise into drift is not known")


def scales(replicas: Replicas, steps: int) -> list[Tensor] | None:
    """Adam's sqrt(v / (1 - beta2^t)) + eps after `steps` updates, [L, n] per block; None for SGD."""
    group = replicas.optimizer.param_groups[0]
    if "betas" not in group:
        return None
    correction = 1.0 - float(group["betas"][1]) ** steps
    found = []
    for _, owner in replicas.owners:
        second = replicas.optimizer.state.get(owner, {}).get("exp_avg_sq")
        block = replicas.rows(torch.zeros_like(owner) if second is None else second)
        found.append((block / correction).sqrt_().add_(float(group["eps"])))
    return found
