"""Which samples come next: one seeded stream for all ranks, that a change of their number neither skips nor repeats."""

from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.data import Sampler

from paftbench.errors import Refused


class StreamSampler(Sampler[int]):
    """Endless: epoch after epoch of `size` samples, each a permutation of its own, dealt to `world_size` ranks in turn.

    `consumed` counts samples of all ranks; whoever trains adds to it what an update has used, so that samples which a
    loader has fetched ahead are not lost by a kill. After a change of the number of ranks the stream is dealt anew from
    there.
    """

    def __init__(self, size: int, *, rank: int, world_size: int, seed: int = 0) -> None:
        if size < 1:
            raise Refused(f"size (samples of the data set) must be >= 1, got {size}")
        if not 0 <= rank < world_size:
            raise Refused(f"rank must be within [0, world_size {world_size}), got {rank}")
        self.size, self.rank, self.world_size, self.seed = size, rank, world_size, seed
        self.consumed = 0

    def __iter__(self) -> Iterator[int]:
        place = self.consumed + self.rank
        epoch, order = -1, torch.empty(0, dtype=torch.int64)
        while True:
            if place // self.size != epoch:
                epoch = place // self.size
                order = torch.randperm(
                    self.size, generator=torch.Generator().manual_seed(self.seed * 1_000_003 + epoch)
                )
            yield int(order[place % self.size])
            place += self.world_size

    @property
    def epoch(self) -> int:
        return self.consumed // self.size

    def state_dict(self) -> dict[str, Any]:
        return {"consumed": self.consumed, "seed": self.seed, "size": self.size}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """`ValueError` where it is the place in another stream."""
        for name in ("seed", "size"):
            if state[name] != getattr(self, name):
                raise Refused(
                    f"sampler: {name} was {state[name]} and is {getattr(self, name)}: another stream of samples"
                )
        self.consumed = int(state["consumed"])
