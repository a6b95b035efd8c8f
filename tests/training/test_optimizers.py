"""The trial's optimizers and learning rates."""

from typing import Literal

import pytest
import torch
from torch import nn

from paftbench.records.trial import OptimizerConfig
from paftbench.training.optimizers import optimizer_of

N = 1003  # no multiple of a vector's length
Name = Literal["sgd", "adam", "adamw"]
NAMES: tuple[Name, ...] = ("sgd", "adam", "adamw")


def trained(name: Name, values: list[torch.Tensor], gradients: list[torch.Tensor]) -> list[torch.Tensor]:
    """Parameters after four updates."""
    parameters = [nn.Parameter(value.clone()) for value in values]
    optimizer = optimizer_of(OptimizerConfig(name=name, lr=0.0123, weight_decay=0.01))(parameters)
    for _ in range(4):
        for parameter, grad in zip(parameters, gradients, strict=True):
            parameter.grad = grad.clone()
        optimizer.step()
    return [parameter.detach() for parameter in parameters]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", NAMES)
def test_an_update_does_not_depend_on_where_an_element_lies(name: Name, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    value, grad = (torch.randn(N, generator=generator).to(dtype) for _ in range(2))
    (whole,) = trained(name, [value], [grad])
    pieces = trained(name, list(value.split(1)), list(grad.split(1)))
    torch.testing.assert_close(torch.cat(pieces), whole, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("name", NAMES)
def test_half_precision_follows_torchs_own_optimizer_to_its_last_bits(name: Name) -> None:
    generator = torch.Generator().manual_seed(1)
    value, grad = (torch.randn(N, generator=generator) for _ in range(2))
    (half,) = trained(name, [value.bfloat16()], [grad.bfloat16()])
    (full,) = trained(name, [value.bfloat16().float()], [grad.bfloat16().float()])
    torch.testing.assert_close(half.float(), full, rtol=2**-6, atol=2**-6)
