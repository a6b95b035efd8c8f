"""The oracle: a quadratic bowl, whose gradients and trajectories are known in closed form. Shapes: D = `dim`."""

from dataclasses import dataclass
from math import isfinite
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor, nn

from paftbench.errors import Refused
from paftbench.faults.draws import generator_of
from paftbench.workloads.contract import Batch, DataId, Shard, Workload
from paftbench.workloads.evaluation import evaluating

MINIMUM = 1.0
EPOCH_ITEMS = 1024


class Bowl(nn.Module):
    """Parameters `theta` [D], standard normal; called without input it gives their distance from the minimum, 1."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.theta = nn.Parameter(torch.randn(dim))

    def forward(self) -> Tensor:
        return self.theta - MINIMUM


@dataclass(frozen=True, kw_only=True)
class BowlShard:
    """One rank's gradient noise."""

    dim: int
    noise: float
    rank: int
    seed: int

    def batch(self, step: int) -> Batch:
        """The gradient noise of this rank and step [D]; empty where `noise` is 0."""
        if self.noise == 0:
            return (torch.empty(0),)
        generator = generator_of("data", self.seed, step, self.rank)
        return (torch.from_numpy(generator.standard_normal(self.dim, dtype=np.float32) * np.float32(self.noise)),)


@dataclass(frozen=True, kw_only=True)
class Quadratic(Workload):
    """Loss curvature/2 · |theta - 1|² over `dim` parameters; `noise` is the std of each rank's gradient around it.

    The gradient is exactly `curvature` · (theta - 1), plus the noise; curvature 0 gives gradients of exactly zero. The
    metric is the loss without noise. `batch_per_rank` changes nothing, and an epoch is 1,024 items by convention.
    """

    name: ClassVar[str] = "quadratic"
    metric: ClassVar[str] = "loss"
    direction: ClassVar[Literal["max", "min"]] = "min"

    dim: int = 1000
    curvature: float = 1.0
    noise: float = 0.0

    def __post_init__(self) -> None:
        if self.dim < 1:
            raise Refused(f"dim (parameters) must be >= 1, got {self.dim}")
        for name in ("curvature", "noise"):
            value = getattr(self, name)
            if not (isfinite(value) and value >= 0):
                raise Refused(f"{name} must be a finite number >= 0, got {value!r}")

    def data_id(self) -> DataId:
        return DataId(name="none", sha256="")

    def train_items(self) -> int:
        return EPOCH_ITEMS

    @property
    def chance(self) -> float:
        """The expected loss of fresh parameters: E (theta - 1)² = 2."""
        return self.curvature * self.dim

    def model(self) -> nn.Module:
        return Bowl(self.dim)

    def shard(self, rank: int, world_size: int, batch: int, seed: int) -> Shard:
        return BowlShard(dim=self.dim, noise=self.noise, rank=rank, seed=seed)

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        (noise_D,) = batch
        distance_D = model()
        # square(), not a product with itself, whose two halves autograd would round apart when there is noise.
        loss = 0.5 * self.curvature * distance_D.square().sum()
        return loss if len(noise_D) == 0 else loss + (noise_D * distance_D).sum()

    def evaluate(self, model: nn.Module) -> float:
        with evaluating(model):
            return float(0.5 * self.curvature * model().double().square().sum())
