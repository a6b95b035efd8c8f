"""That all ranks were given the same arguments: some of them decide which collectives come."""

import re

import torch

from paftbench.errors import Refused
from paftbench.faults.draws import seed_of
from paftbench.ranks.axis import Ranks

ADDRESS = re.compile(r" at 0x[0-9a-f]+")


def require_same(ranks: Ranks, arguments: dict[str, object]) -> None:
    """`ValueError` on every rank, naming the first argument that differs between any two; every process must call it.

    Arguments are compared by what they look like (`repr`), addresses aside.
    """
    own_K = torch.tensor([_digest(value) for value in arguments.values()], dtype=torch.int64)
    processes = ranks.world_size // len(ranks.local)
    differs_K = ranks.total(own_K.clone()) != own_K * processes
    if not ranks.any(differs_K):
        return
    for (name, value), differs in zip(arguments.items(), differs_K, strict=True):
        if ranks.any(differs):
            raise Refused(f"{name}: all ranks must attach with the same, but they differ; on this rank {value!r}")


def _digest(value: object) -> int:
    """40 bits: a sum over thousands of ranks fits into 64."""
    return seed_of(ADDRESS.sub("", repr(value))) >> 24
