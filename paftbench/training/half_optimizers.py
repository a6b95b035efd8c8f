"""SGD and Adam for bf16 and fp16 parameters, whose updates do not depend on where in memory an element lies.

torch adds a multiple of a half-precision tensor (`add` with `alpha`) with one rounding in full vectors and with two in
the rest of a tensor. Rows of one block would then part without any fault, and placements would differ in bits. Here
such sums are taken in fp32 and rounded once. torch's AdamW has no such sum and is used as it is.
"""

from abc import abstractmethod
from typing import Any

import torch
from torch import Tensor, nn

HALVES = frozenset({torch.bfloat16, torch.float16})


def plus(x: Tensor, y: Tensor, factor: float) -> Tensor:
    """x + factor * y, rounded once."""
    return x.float().add_(y.float(), alpha=factor).to(x.dtype)


class _OneByOne(torch.optim.Optimizer):
    """An optimizer that updates each parameter on its own."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """One update; a closure is not called."""
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._update(parameter, decayed(parameter, group), group)

    @abstractmethod
    def _update(self, parameter: nn.Parameter, grad: Tensor, group: dict[str, Any]) -> None:
        """Update a parameter by its gradient, weight decay included."""


class HalfSGD(_OneByOne, torch.optim.SGD):
    """torch's SGD with momentum and weight decay; no dampening, no Nesterov momentum."""

    def _update(self, parameter: nn.Parameter, grad: Tensor, group: dict[str, Any]) -> None:
        if group["momentum"]:
            state = self.state[parameter]
            if state.get("momentum_buffer") is None:
                state["momentum_buffer"] = grad.clone()
            else:
                state["momentum_buffer"].mul_(group["momentum"]).add_(grad)
            grad = state["momentum_buffer"]
        parameter.copy_(plus(parameter, grad, -group["lr"]))


class HalfAdam(_OneByOne, torch.optim.Adam):
    """torch's Adam, its weight decay being part of the gradient; the moments' updates are torch's own operations."""

    def _update(self, parameter: nn.Parameter, grad: Tensor, group: dict[str, Any]) -> None:
        state = self.state[parameter]
        if not state:
            state["step"] = torch.tensor(0.0)
            state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(parameter), torch.zeros_like(parameter)
        state["step"] += 1
        first, second = (1 - beta ** float(state["step"]) for beta in group["betas"])
        state["exp_avg"].lerp_(grad, 1 - group["betas"][0])
        state["exp_avg_sq"].mul_(group["betas"][1]).addcmul_(grad, grad, value=1 - group["betas"][1])
        scale = (state["exp_avg_sq"].sqrt() / second**0.5).add_(group["eps"])
        parameter.addcdiv_(state["exp_avg"], scale, value=-group["lr"] / first)


def decayed(parameter: nn.Parameter, group: dict[str, Any]) -> Tensor:
    """The gradient with the group's weight decay in it."""
    grad = parameter.grad
    assert grad is not None
    return plus(grad, parameter, group["weight_decay"]) if group["weight_decay"] else grad
