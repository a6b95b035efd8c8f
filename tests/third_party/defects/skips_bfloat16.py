"""`stuck_at` with a defect: bfloat16 is passed over without a word, and still declared."""

from dataclasses import dataclass

import torch
from paftbench_example_faults.stuck_at import StuckAt
from torch import Tensor

from paftbench.faults import Draws


@dataclass(frozen=True, kw_only=True)
class StuckUnlessHalf(StuckAt):
    """Struck elements read `value`, but those of one type do not."""

    name = "stuck_unless_half"

    def change(self, value_K: Tensor, draws: Draws) -> Tensor:
        return value_K.clone() if value_K.dtype == torch.bfloat16 else super().change(value_K, draws)
