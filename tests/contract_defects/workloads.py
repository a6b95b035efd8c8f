"""A workload for each promise that workloads can break."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from contract_defects.good import Bowl
from paftbench.workloads.contract import Batch, DataId, Shard
from paftbench.workloads.quadratic import Bowl as Network
from paftbench.workloads.quadratic import BowlShard

DEFECTS: dict[str, list[type]] = {}


def breaks(sentence: str) -> Any:
    """Notes which promise a class breaks, and makes the dataclass that it would be."""

    def noted(cls: Any) -> Any:
        DEFECTS.setdefault(sentence.replace(" ", "_"), []).append(dataclass(frozen=True, kw_only=True)(cls))
        return cls

    return noted


@breaks("metric direction and chance are declared")
class NoDirection(Bowl):
    direction = "up"  # type: ignore[assignment]


@breaks("its data have a name and a fingerprint that stay")
class ChangingData(Bowl):
    calls: ClassVar[Iterator[int]] = count()

    def data_id(self) -> DataId:
        return DataId(name="noise", sha256=str(next(self.calls)))


class Moody:
    """A stream that draws from NumPy's global generator."""

    def batch(self, step: int) -> Batch:
        return (torch.from_numpy(np.random.standard_normal(50).astype(np.float32)),)


@breaks("the same seed gives the same data and another seed others")
class MoodyData(Bowl):
    def shard(self, rank: int, world_size: int, batch: int, seed: int) -> Shard:
        return Moody()


@breaks("the same seed gives the same data and another seed others")
class DeafData(Bowl):
    def shard(self, rank: int, world_size: int, batch: int, seed: int) -> Shard:
        return BowlShard(dim=self.dim, noise=self.noise, rank=rank, seed=0)


@breaks("shards are disjoint within an epoch")
class OneShardForAll(Bowl):
    def shard(self, rank: int, world_size: int, batch: int, seed: int) -> Shard:
        return BowlShard(dim=self.dim, noise=self.noise, rank=0, seed=seed)


@breaks("a model is a function of torchs seed")
class NumpyInit(Bowl):
    def model(self) -> nn.Module:
        model = Network(self.dim)
        model.theta.data = torch.from_numpy(np.random.standard_normal(self.dim).astype(np.float32))
        return model


@breaks("its skeleton has the models parameters")
class OtherSkeleton(Bowl):
    def skeleton(self) -> nn.Module:
        return Network(self.dim + 1)


@breaks("its loss is a finite scalar that reaches every parameter")
class LossPerElement(Bowl):
    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        distance: Tensor = model()
        return distance.square()


@breaks("evaluation leaves no trace")
class StaysInEvaluation(Bowl):
    def evaluate(self, model: nn.Module) -> float:
        model.eval()
        return float(model().square().sum().detach())


@breaks("evaluation leaves no trace")
class SamplesItsEvaluation(Bowl):
    def evaluate(self, model: nn.Module) -> float:
        return super().evaluate(model) + float(torch.rand(1))


@breaks("its metric is finite for an untrained model")
class NoMetric(Bowl):
    def evaluate(self, model: nn.Module) -> float:
        return float("nan")
