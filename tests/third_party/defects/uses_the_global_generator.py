"""`stuck_at` with a defect: the value is drawn from torch's global generator."""

from dataclasses import dataclass

import torch
from paftbench_example_faults.stuck_at import StuckAt
from torch import Tensor

from paftbench.faults import Draws


@dataclass(frozen=True, kw_only=True)
class StuckAnywhere(StuckAt):
    """Struck elements read a random number around `value`."""

    name = "stuck_anywhere"

    def change(self, value_K: Tensor, draws: Draws) -> Tensor:
        return (self.value + torch.randn(len(value_K))).to(value_K)
