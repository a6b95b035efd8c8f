"""What enters a gradient, told by autograd, so that an update takes what came through DDP's hook and nothing else."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn


class Arrivals:
    """Parameters whose gradient something has entered since the last synchronised backward pass was over.

    `named` are those that DDP reduces. Others of the model, or that come to the optimizer later, must have no gradient;
    what the optimizer held besides the model when it was attached is the user's own.
    """

    def __init__(
        self, module: nn.Module, named: Sequence[tuple[str, nn.Parameter]], optimizer: torch.optim.Optimizer
    ) -> None:
        self._module, self._optimizer = module, optimizer
        self._reduced = {id(parameter): name for name, parameter in named}
        own = {id(parameter) for parameter in module.parameters()}
        self._elsewhere = {id(parameter) for parameter in _held(optimizer) if id(parameter) not in own}
        self._since: set[Tensor] = set()
        arrived = self._since.add  # a bound method of the set's: the cheapest hook there is
        self._hooks = [parameter.register_post_accumulate_grad_hook(arrived) for _, parameter in named]

    def reduced(self) -> None:
        """A synchronised pass is over: all that has arrived is in the mean."""
        self._since.clear()

    def past_the_hook(self) -> str:
        """The first parameter with a gradient that did not come through the hook; empty where there is none."""
        if self._since:
            return repr(min(self._reduced[id(parameter)] for parameter in self._since))
        for parameter in _held(self._optimizer):
            known = id(parameter) in self._reduced or id(parameter) in self._elsewhere
            if not known and parameter.grad is not None:
                return self._name_of(parameter)
        return ""

    def release(self) -> None:
        for hook in self._hooks:
            hook.remove()

    def _name_of(self, parameter: Tensor) -> str:
        found = (repr(name) for name, own in self._module.named_parameters() if own is parameter)
        return next(found, f"of shape {list(parameter.shape)}, which the model does not have,")


def _held(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]
