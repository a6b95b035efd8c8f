"""A workload on trial, in its default size and data."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from paftbench.testing.streams import seed_streams, streams_untouched
from paftbench.verify.promise import NotTried
from paftbench.verify.variants import built
from paftbench.workloads.contract import Batch, Workload

WORLD, BATCH = 3, 4


@dataclass(frozen=True)
class WorkloadCase:
    """`cls` with the default of every field."""

    cls: type[Workload]

    @property
    def label(self) -> str:
        return ""

    def make(self) -> Workload:
        """A fresh instance; `NotTried` where its data are not here."""
        workload: Workload = built(self.cls, {})
        try:
            workload.data_id()
        except LookupError as missing:
            raise NotTried(str(missing)) from None
        return workload

    def model(self, seed: int = 0, *, others: int = 0) -> nn.Module:
        """A fresh model from a seed of torch's global generator; the other global generators stand at `others`."""
        workload = self.make()
        with streams_untouched():
            seed_streams(others)
            torch.manual_seed(seed)
            return workload.model()

    def batch(self, step: int, rank: int = 0, seed: int = 0, world_size: int = WORLD) -> Batch:
        """A rank's batch at a step, from a shard of its own."""
        return self.make().shard(rank, world_size, BATCH, seed).batch(step)


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Global generators at a seed inside, and as they were afterwards."""
    with streams_untouched():
        seed_streams(seed)
        yield


def same(one: Batch, other: Batch) -> bool:
    """Whether two batches hold the same tensors."""
    return len(one) == len(other) and all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def items(batch: Batch, count: int) -> list[bytes]:
    """The items of a batch: what lies at each of the `count` places of its first axis, else the batch as a whole."""
    parts = [part.detach().contiguous() for part in batch if part.numel()]
    if not parts:
        return []
    if any(len(part) != count if part.ndim else True for part in parts):
        return [b"".join(part.numpy().tobytes() for part in parts)]
    return [b"".join(part[i].numpy().tobytes() for part in parts) for i in range(count)]


def copies(model: nn.Module) -> dict[str, Tensor]:
    """Parameters and buffers by name."""
    return {name: value.detach().clone() for name, value in model.state_dict().items()}
