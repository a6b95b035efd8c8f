"""A GPT-2 with what trips an aggregation: a tied head, dropout, a frozen parameter, and one that no step uses."""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from paftbench.workloads.gpt2 import Gpt2


class Awkward(nn.Module):
    """A language model beside a parameter that nothing uses, the position table frozen."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.idle = nn.Parameter(torch.randn(1001))
        self.model = model
        self.model.transformer.wpe.weight.requires_grad_(False)

    def forward(self, input_ids: Tensor) -> Any:
        return self.model(input_ids=input_ids)


@dataclass(frozen=True, kw_only=True)
class AwkwardGpt2(Gpt2):
    """GPT-2 nano with windows of 16 tokens."""

    name: ClassVar[str] = "awkward_gpt2"
    find_unused_parameters: ClassVar[bool] = True

    context: int = 16

    def network(self, vocab: int) -> nn.Module:
        return Awkward(super().network(vocab))
