"""The rank axis: everything that differs between ranks has a leading axis of length L, the ranks this process hosts.

Shapes: L = ranks hosted here, W = world size, N = elements. `Ranks` owns every operation that crosses ranks; with a
group the W ranks live in several processes, without one they all live here.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from paftbench.errors import Refused
from paftbench.ranks.side import Side

# torch 2.14 renames it and deprecates the old name, the only one that older versions have.
_ALL_GATHER = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor


@dataclass(kw_only=True)
class Traffic:
    """What collectives moved: payload bytes that one rank put in, whether or not processes were crossed."""

    collectives: int = 0
    bytes: int = 0


class Pending:
    """A mean under way; `wait` gives it, any number of times."""

    def __init__(self, finish: Callable[[], list[Tensor]]) -> None:
        self._finish: Callable[[], list[Tensor]] | None = finish
        self._means: list[Tensor] = []

    def wait(self) -> list[Tensor]:
        """The means, [1, N] each, in the order given to the call that started them."""
        if self._finish is not None:
            self._means = self._finish()
            self._finish = None
        return self._means


class Ranks:
    """The W ranks of a trial, `local` of which live in this process.

    With `exact`, means sum in ring order: chunk c of N elements (boundaries floor(c*N/W)) adds the rows c, c+1, ...,
    c-1, so every placement gives the same bits.
    """

    def __init__(
        self, world_size: int, local: Sequence[int], group: dist.ProcessGroup | None = None, *, exact: bool = False
    ) -> None:
        if group is None and len(local) != world_size:
            raise Refused(f"local (ranks hosted here): without a group all {world_size} must be, got {list(local)}")
        self.world_size = world_size
        self.local = tuple(local)
        self.group = group
        self.exact = exact
        self.traffic = Traffic()
        self._segments: Segments | None = None

    @classmethod
    def virtual(cls, world_size: int, *, exact: bool = False) -> "Ranks":
        """All ranks in this process."""
        return cls(world_size, range(world_size), exact=exact)

    @classmethod
    def of_group(cls, world_size: int, group: dist.ProcessGroup, *, exact: bool = False) -> "Ranks":
        """This process's share of the ranks: `world_size` split evenly, in order, over the group's processes."""
        processes = dist.get_world_size(group)
        if world_size % processes:
            raise Refused(f"world_size {world_size} is not a multiple of the {processes} processes")
        share = world_size // processes
        first = dist.get_rank(group) * share
        return cls(world_size, range(first, first + share), group, exact=exact)

    @property
    def hosts_first(self) -> bool:
        """Whether rank 0 lives here: the process that writes records."""
        return 0 in self.local

    @property
    def scale(self) -> float:
        """1/W: rows are multiplied by its float32 value before they are summed, as DDP does without a hook."""
        return 1.0 / self.world_size

    def mean(self, x_LN: Tensor, segments: "Segments | None" = None) -> Tensor:
        """Mean over all W ranks, [1, N]; `segments` says where a bucket's elements lie in the ring's chunks."""
        self.count(x_LN)
        if self.exact:
            # Every process adds all rows itself: what a library's all-reduce adds first hangs on how many processes
            # there are, and the same bits are to come out of any number of them.
            segments = segments or self._segments_of(x_LN)
            return ring_sum(self._gathered(x_LN * self.scale), segments)
        total_1N = row_sum(x_LN * self.scale)
        if self.group is not None:
            dist.all_reduce(total_1N, group=self.group)
        return total_1N

    @contextmanager
    def bucket(self, segments: "Segments | None") -> Iterator[None]:
        """Inside, means of as many elements as `segments` covers are means of that bucket."""
        self._segments = segments
        try:
            yield
        finally:
            self._segments = None

    def _segments_of(self, x_LN: Tensor) -> "Segments":
        size = x_LN.shape[1]
        if self._segments is not None and sum(stop - start for start, stop, _ in self._segments) == size:
            return self._segments
        return default_segments(size, self.world_size)

    def gather(self, x_LN: Tensor) -> Tensor:
        """Every rank's row, [W, N], in rank order."""
        self.count(x_LN)
        return self._gathered(x_LN)

    def any(self, flag_L: Sequence[bool] | Tensor) -> bool:
        """Whether any rank's flag is set, agreed by all ranks."""
        here = bool(torch.as_tensor(flag_L).any())
        if self.group is None:
            return here
        # int32: gloo reduces no bool.
        flag_1 = torch.tensor([int(here)], dtype=torch.int32, device=self._collective_device())
        dist.all_reduce(flag_1, op=dist.ReduceOp.MAX, group=self.group)
        return bool(flag_1.item())

    def total(self, x: Tensor) -> Tensor:
        """Sum of a tensor over the processes, in place: for metrics, which are no traffic of the training."""
        if self.group is not None:
            moved = x.to(self._collective_device())
            dist.all_reduce(moved, group=self.group)
            x.copy_(moved)
        return x

    def gather_objects(self, item: Any) -> list[Any]:
        """Every process's item, in rank order: for records, never in a step's path."""
        if self.group is None:
            return [item]
        items: list[Any] = [None] * dist.get_world_size(self.group)
        dist.all_gather_object(items, item, group=self.group)
        return items

    def barrier(self) -> None:
        """Wait until every process is here."""
        self.any([False])

    def consensus(self, blocks: Sequence[Tensor]) -> list[Tensor]:
        """Means of blocks [L, n] that are nearly equal on all ranks, as rank 0's value + mean(difference to it).

        The plain mean of W equal fp32 values is not the value when W is not a power of two, nor from W = 8 on (44 % of
        elements at W = 8); this form leaves equal replicas exactly as they are. Where rank 0's value is not finite, it
        is the plain mean.
        """
        return self.start_consensus(blocks, asynchronous=False).wait()

    def start_consensus(self, blocks: Sequence[Tensor], *, asynchronous: bool = True) -> Pending:
        """`consensus` of the blocks as they are now, computed while the caller goes on; the same bits either way."""
        packed = [group[0] if len(group) == 1 else torch.cat(group, dim=1) for group in _by_dtype(blocks)]
        for x_LN in packed:
            self.count(x_LN)
        if self.group is None or not asynchronous:
            means = [self._about_first(x_LN, self.group) for x_LN in packed]
            return Pending(lambda: _unpack(blocks, means))
        packed = [_apart(x_LN, blocks) for x_LN in packed]
        wait = Side.of(self.group).start(lambda group: [self._about_first(x_LN, group) for x_LN in packed])
        return Pending(lambda: _unpack(blocks, wait()))

    def _about_first(self, x_LN: Tensor, group: dist.ProcessGroup | None) -> Tensor:
        if self.exact:
            # Not about 0: rank 0's value plus the mean of what others have more is that value where all are equal.
            rows_WN = self._gathered(x_LN, group)
            first_1N = _finite(rows_WN[:1])
            shifted_WN = (rows_WN - first_1N) * self.scale
            return _moved(first_1N, ring_sum(shifted_WN, default_segments(x_LN.shape[1], self.world_size)))
        first_1N = _finite(x_LN[:1])
        if group is not None:
            dist.broadcast(first_1N, src=dist.get_global_rank(group, 0), group=group)
        total_1N = row_sum((x_LN - first_1N) * self.scale)
        if group is not None:
            dist.all_reduce(total_1N, group=group)
        return _moved(first_1N, total_1N)

    def _gathered(self, x_LN: Tensor, group: dist.ProcessGroup | None = None) -> Tensor:
        group = group or self.group
        if group is None:
            return x_LN
        rows_WN = x_LN.new_empty((self.world_size, x_LN.shape[1]))
        _ALL_GATHER(rows_WN, x_LN.contiguous(), group=group)
        return rows_WN

    def count(self, x_LN: Tensor) -> None:
        """Note a collective over `x_LN` as traffic."""
        self.traffic.collectives += 1
        self.traffic.bytes += x_LN.shape[1] * x_LN.element_size()

    def _collective_device(self) -> torch.device:
        return torch.device("cuda" if dist.get_backend(self.group) == "nccl" else "cpu")


Segments = list[tuple[int, int, int]]


def default_segments(size: int, world_size: int) -> Segments:
    """(start, stop, first row) of the W ring chunks of a flat vector: boundaries floor(c*N/W)."""
    bounds = [c * size // world_size for c in range(world_size + 1)]
    return [(bounds[c], bounds[c + 1], c) for c in range(world_size)]


def row_sum(rows_LN: Tensor) -> Tensor:
    """Sum of rows in their order, [1, N]: `sum(0)` starts from +0 and so loses the sign of -0, which DDP keeps."""
    total_1N = rows_LN[:1].clone()
    for row_N in rows_LN[1:]:
        total_1N += row_N
    return total_1N


def ring_sum(rows_WN: Tensor, segments: Segments) -> Tensor:
    """Sum of rows in ring order by explicit adds, [1, N]: `sum(0)` is not sequential at W >= 64."""
    world_size = rows_WN.shape[0]
    total_1N = torch.empty_like(rows_WN[:1])
    for start, stop, first in segments:
        # Chunk c starts at rank c and is handed on: rank c + 1 adds its own, and so on round the ring.
        partial = rows_WN[first, start:stop].clone()
        for hop in range(1, world_size):
            partial += rows_WN[(first + hop) % world_size, start:stop]
        total_1N[0, start:stop] = partial
    return total_1N


def _finite(value_1N: Tensor) -> Tensor:
    """A copy with 0 for what is not finite: the difference of an infinity to itself would be NaN, not 0."""
    return value_1N.nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)


def _moved(value_1N: Tensor, by_1N: Tensor) -> Tensor:
    """The sum, and the value itself where it does not move: -0 + 0 would be +0."""
    return torch.where(by_1N == 0, value_1N, value_1N + by_1N)


def _by_dtype(blocks: Sequence[Tensor]) -> list[list[Tensor]]:
    # One collective a type, for all blocks together: each costs a message's latency, whatever its size.
    grouped: dict[torch.dtype, list[Tensor]] = {}
    for block in blocks:
        grouped.setdefault(block.dtype, []).append(block)
    return list(grouped.values())


def _apart(x_LN: Tensor, blocks: Sequence[Tensor]) -> Tensor:
    """The values as they are now, also when the blocks change: joined blocks are a copy already."""
    return x_LN.clone() if any(x_LN is block for block in blocks) else x_LN


def _unpack(blocks: Sequence[Tensor], means: list[Tensor]) -> list[Tensor]:
    """Split packed means [1, N] into one [1, n] per block, in the blocks' order."""
    parts: dict[int, Tensor] = {}
    for group, mean_1N in zip(_by_dtype(blocks), means, strict=True):
        for block, part in zip(group, mean_1N.split([b.shape[1] for b in group], dim=1), strict=True):
            parts[id(block)] = part  # tensors compare by value, so they are known again by what they are
    return [parts[id(block)] for block in blocks]
