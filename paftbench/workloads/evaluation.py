"""Looking at a model without touching it."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn


@contextmanager
def evaluating(model: nn.Module) -> Iterator[tuple[torch.device, torch.dtype]]:
    """Evaluation mode without gradients; yields the model's device and floating-point type.

    Each module's own mode is put back, since a user may hold some of them (a frozen BatchNorm) out of training.
    """
    training = [module for module in model.modules() if module.training]
    like = next(parameter for parameter in model.parameters() if parameter.is_floating_point())
    model.eval()
    try:
        with torch.no_grad():
            yield like.device, like.dtype
    finally:
        for module in training:
            module.training = True
