"""How good the replicas are: the mean model, the worst rank, and rank 0, which alone may be blind to a fault."""

from dataclasses import asdict, dataclass
from math import isnan

import torch
from torch import Tensor, nn

from paftbench.ranks.axis import row_sum
from paftbench.ranks.layout import trainable
from paftbench.ranks.replicas import Replicas, float_buffers
from paftbench.workloads.contract import Workload


@dataclass(frozen=True, kw_only=True)
class Quality:
    """The workload's metric, three ways."""

    mean_model: float
    worst_rank: float
    rank0: float

    def of(self, judge: str) -> float:
        """The one that an experiment judges by."""
        return float(asdict(self)[judge])


def measure(workload: Workload, replicas: Replicas, spare: nn.Module) -> Quality:
    """Evaluate every rank and the mean model, which is built in `spare`; every process must call it.

    The mean model has the mean parameters and the mean floating-point buffers. Random state is as it was afterwards.
    """
    ranks = replicas.ranks
    devices = [replicas.parameters[0].device.index] if replicas.parameters[0].is_cuda else []
    with torch.random.fork_rng(devices=devices), torch.no_grad():
        here = torch.tensor([[workload.evaluate(module)] for module in replicas.modules], dtype=torch.float64)
        by_rank = [float(value) for value in _all_rows(here, replicas)]
        _load_mean(replicas, spare)
        mean_model = workload.evaluate(spare)
    worst = min(by_rank) if workload.direction == "max" else max(by_rank)
    if any(isnan(value) for value in by_rank):
        worst = float("nan")
    assert len(by_rank) == ranks.world_size
    return Quality(mean_model=mean_model, worst_rank=worst, rank0=by_rank[0])


def _all_rows(here_L1: Tensor, replicas: Replicas) -> Tensor:
    ranks = replicas.ranks
    rows_W = torch.zeros(ranks.world_size, dtype=torch.float64)
    rows_W[list(ranks.local)] = here_L1[:, 0]
    return ranks.total(rows_W)


def _load_mean(replicas: Replicas, spare: nn.Module) -> None:
    means = [_mean64(block, replicas) for block in replicas.parameters]
    flat_N = torch.cat([mean.to(torch.float64) for mean in means])
    for slot, (_, parameter) in zip(replicas.layout.slots, trainable(spare), strict=True):
        parameter.copy_(flat_N[slot.start : slot.stop].view(slot.shape))
    for buffer, block in zip(float_buffers(spare), replicas.buffers(), strict=True):
        buffer.copy_(_mean64(block, replicas).view_as(buffer))


def _mean64(block_Ln: Tensor, replicas: Replicas) -> Tensor:
    return replicas.ranks.total(row_sum(block_Ln.double())[0]) / replicas.ranks.world_size
