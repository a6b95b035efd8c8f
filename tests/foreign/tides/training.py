"""The training loop, as it runs under torchrun on the project's own machines."""

import torch
from torch import nn
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

from tides.levels import dataset


def train(model: nn.Module, optimizer: torch.optim.Optimizer, epochs: int = 8) -> list[float]:
    """Mean squared error of each epoch on this rank's share of the data."""
    levels = dataset()
    sampler: DistributedSampler[int] = DistributedSampler(levels)
    loader = DataLoader(levels, batch_size=30, sampler=sampler)
    errors = []
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        total = 0.0
        for past, following in loader:
            loss = nn.functional.mse_loss(model(past), following)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        errors.append(total / len(loader))
    return errors
