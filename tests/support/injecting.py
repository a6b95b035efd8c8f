"""What the tests of faults share: the contract's injector without training, over every registered fault model."""

import torch

from paftbench.plugins import known
from paftbench.verify.striking import (
    SHAPES,
    Struck,
    gradients,
    in_buckets_backwards,
    in_slots,
    layout_of,
    ranks_of,
    same_bits,
    strike,
)

DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]
SITES = ["contribution", "result", "parameter", "optimizer_state"]
UNITS = [(name, unit) for name, cls in sorted(known("fault_models").items()) for unit in cls.units]

__all__ = [
    "DTYPES", "SHAPES", "SITES", "UNITS", "Struck", "gradients", "in_buckets_backwards", "in_slots", "layout_of",
    "ranks_of", "same_bits", "strike",
]  # fmt: skip
