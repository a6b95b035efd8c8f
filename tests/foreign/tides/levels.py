"""Water levels of an invented harbour: two tides, a trend, and waves."""

import torch
from torch.utils.data import TensorDataset

HOURS, PAST = 1200, 24


def dataset() -> TensorDataset:
    """A day of hourly levels in metres, and the level of the hour after."""
    hours = torch.arange(HOURS + PAST, dtype=torch.float32)
    waves = torch.randn(hours.shape, generator=torch.Generator().manual_seed(7))
    levels = torch.sin(hours / 1.98) + 0.4 * torch.sin(hours / 1.91) + 0.0002 * hours + 0.05 * waves
    windows = levels.unfold(0, PAST + 1, 1)
    return TensorDataset(windows[:, :PAST].contiguous(), windows[:, PAST:].contiguous())
