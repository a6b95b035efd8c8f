"""One of `doctor`'s two ranks: `python -m paftbench.cli.rank_check FILE`, as `paftbench.ranks.launch` starts it."""

import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from paftbench.process import die_with_parent
from paftbench.ranks.launch import join
from paftbench.store.files import write_json
from paftbench.telling import reason_of

LIMIT_S = 60.0


def main(report: Path) -> None:
    """A gloo round trip, then a step of DDP whose hook must be called; rank 0 writes what came out."""
    die_with_parent()
    try:
        group = join("gloo", LIMIT_S)
    except RuntimeError as error:
        write_json(report, {"gloo": False, "hook": False, "error": reason_of(error)})
        raise
    rank = dist.get_rank(group)
    total = torch.full((4,), float(rank + 1))
    dist.all_reduce(total)
    calls = []

    def hook(state: object, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        calls.append(bucket.index())
        future: torch.futures.Future[torch.Tensor] = torch.futures.Future()
        future.set_result(bucket.buffer() * 3)
        return future

    model = DistributedDataParallel(nn.Linear(2, 1, bias=False))
    model.register_comm_hook(None, hook)
    model(torch.ones(1, 2)).sum().backward()
    gradient = model.module.weight.grad
    if rank == 0:
        hooked = bool(calls) and gradient is not None and bool((gradient == 3).all())
        write_json(report, {"gloo": total.tolist() == [3.0] * 4, "hook": hooked})
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
