"""What a workload offers to a trial."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, Protocol

from torch import Tensor, nn

Batch = tuple[Tensor, ...]


@dataclass(frozen=True, kw_only=True)
class DataId:
    """Which data a trial trained on: part of its identity."""

    name: str
    sha256: str


class Shard(Protocol):
    """One rank's stream of batches."""

    def batch(self, step: int) -> Batch:
        """The rank's batch at a step: a pure function of (seed, step, rank), on the CPU."""
        ...


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What a model takes, for estimates: multiply-adds of one item's forward, and items of one evaluation."""

    multiply_adds: float
    evaluated: int


@dataclass(frozen=True, kw_only=True)
class Workload(ABC):
    """A model, its data and its quality metric; subclasses' fields are what a trial may set."""

    plugin_kind: ClassVar[str] = "workloads"
    name: ClassVar[str]
    metric: ClassVar[str]
    direction: ClassVar[Literal["max", "min"]]
    sizes: ClassVar[Mapping[str, str]] = {}
    find_unused_parameters: ClassVar[bool] = False
    imports: ClassVar[tuple[str, ...]] = ()  # modules that `model` needs: processes of many trials share one import

    @property
    def data_name(self) -> str | None:
        """What the data set is called where it is not here; `None` for data that cannot be absent."""
        return None

    @property
    def tokens_per_item(self) -> int:
        """Tokens that an item takes of its data set; 1 where items are counted."""
        return 1

    @abstractmethod
    def data_id(self) -> DataId:
        """Name and fingerprint of the data; `LookupError` naming the command that gets a missing set."""

    @abstractmethod
    def train_items(self) -> int:
        """How many items one epoch has."""

    @property
    @abstractmethod
    def chance(self) -> float:
        """The metric of a model that knows nothing."""

    @abstractmethod
    def model(self) -> nn.Module:
        """A fresh fp32 model on the CPU, initialised from torch's global generator, which the caller has seeded."""

    def skeleton(self) -> nn.Module:
        """A model of the same parameters, for their names and shapes; without the data where those do not set them."""
        return self.model()

    def cost(self) -> Cost | None:
        """What estimates of time rest on, without the data; `None` where it is not known."""
        return None

    @abstractmethod
    def shard(self, rank: int, world_size: int, batch: int, seed: int) -> Shard:
        """The stream of one rank: `batch` items a step, disjoint from the other ranks' within an epoch."""

    @abstractmethod
    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        """The scalar training loss; `batch` is on the model's device, floating-point tensors in its dtype."""

    def examples(self) -> int | None:
        """How many held-out examples `evaluate` takes the mean of; `None` where it is no mean, or not known."""
        return None

    @abstractmethod
    def evaluate(self, model: nn.Module) -> float:
        """The metric on held-out data; leaves mode, gradients and random state of the model as they were."""
