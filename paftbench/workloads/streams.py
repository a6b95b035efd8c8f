"""Which items a rank trains on: its places in one seeded stream that all ranks share.

At step t rank r of W takes the places t·W·b + r·b ... + b - 1 of an endless sequence of epochs, each a permutation of
the items; so ranks are disjoint within an epoch, any world size fits, and a resumed trial needs no state.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from paftbench.errors import Refused
from paftbench.faults.draws import generator_of


@dataclass(frozen=True, kw_only=True)
class Stream:
    """One rank's places among `items`."""

    items: int
    rank: int
    world_size: int
    batch: int
    seed: int

    def __post_init__(self) -> None:
        if not 0 <= self.rank < self.world_size:
            raise Refused(f"rank must be within [0, {self.world_size}), got {self.rank}")
        if self.batch < 1:
            raise Refused(f"batch (items of a rank and step) must be >= 1, got {self.batch}")

    def indices(self, step: int) -> NDArray[np.int64]:
        """Item numbers of a step, shape [batch]; not to be written to."""
        # Places are counted over all ranks, so each rank finds its own without having read those before.
        epoch, first = divmod((step * self.world_size + self.rank) * self.batch, self.items)
        last = first + self.batch
        if last <= self.items:
            return permutation(self.items, self.seed, epoch)[first:last]
        # A batch may run over an epoch's end, or over several where it is larger than the data.
        epochs = range(epoch, epoch + (last - 1) // self.items + 1)
        return np.concatenate([permutation(self.items, self.seed, number) for number in epochs])[first:last]


@lru_cache(maxsize=4)
def permutation(items: int, seed: int, epoch: int) -> NDArray[np.int64]:
    """The order of an epoch, shape [items]."""
    return generator_of("data", seed, epoch).permutation(items)
