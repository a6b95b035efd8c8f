"""Gradient accumulation in half precision with a GradScaler, with bit flips on one rank; clipping and PAFT-Sync.

    torchrun --standalone --nproc-per-node 2 examples/accumulation_amp.py
    torchrun --standalone --nproc-per-node 2 examples/accumulation_amp.py --unprotected

The highest exponent bit flips: small gradients become enormous, some infinite. A scaler sees an infinity only on the
rank that has it; passed to `attach`, it lets all ranks skip that update together. (The first update is always skipped:
the scale starts too high for half precision.) Only the last of the micro-batches is reduced, so `accumulation` stays 1.
"""

import argparse
from contextlib import nullcontext

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.amp import GradScaler, autocast
from torch.nn.parallel import DistributedDataParallel

import paftbench

FAULTS = [paftbench.Fault("bit_flip", degree=1e-3, unit="per_element", bits=30, site="result", ranks=[1])]
MITIGATIONS = [
    paftbench.Mitigation("clip_value", limit=0.1),
    paftbench.Mitigation("paft_sync", period=5, state="all"),
]

MICRO_BATCHES, BATCH, FEATURES = 4, 16, 16


def batch(number: int, rank: int) -> tuple[Tensor, Tensor]:
    """A fixed non-linear function of random points."""
    generator = torch.Generator().manual_seed(1000 * number + rank)
    points = torch.randn(BATCH, FEATURES, generator=generator)
    return points, torch.sin(points).sum(dim=1, keepdim=True)


def build() -> tuple[DistributedDataParallel, torch.optim.Optimizer, GradScaler]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(FEATURES, 64), nn.GELU(), nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    return DistributedDataParallel(model), optimizer, GradScaler("cpu")


def train(ddp: DistributedDataParallel, optimizer: torch.optim.Optimizer, scaler: GradScaler, steps: int) -> int:
    """The loop; how many updates the scaler skipped."""
    skipped = 0
    for step in range(steps):
        optimizer.zero_grad()
        for part in range(MICRO_BATCHES):
            points, targets = batch(MICRO_BATCHES * step + part, dist.get_rank())
            last = part == MICRO_BATCHES - 1
            with nullcontext() if last else ddp.no_sync():
                with autocast("cpu", dtype=torch.float16):
                    loss = nn.functional.mse_loss(ddp(points), targets)
                scaler.scale(loss / MICRO_BATCHES).backward()
        before = scaler.get_scale()
        scaler.step(optimizer)
        scaler.update()
        skipped += scaler.get_scale() < before
        if step % 10 == 9:
            losses = [torch.empty(()) for _ in range(dist.get_world_size())]
            dist.all_gather(losses, loss.detach())
            if dist.get_rank() == 0:
                print(f"step {step + 1:3d}  loss of each rank: {' '.join(f'{one:.3f}' for one in losses)}")
    return skipped


def main(steps: int = 40, *, unprotected: bool = False) -> None:
    ddp, optimizer, scaler = build()
    mitigations = [] if unprotected else MITIGATIONS
    with paftbench.attach(ddp, optimizer, scaler, faults=FAULTS, mitigations=mitigations, seed=0) as attached:
        skipped = train(ddp, optimizer, scaler, steps)
    divergence = attached.divergence()
    strikes = torch.tensor(attached.strikes.landed)
    dist.all_reduce(strikes)
    if dist.get_rank() == 0:
        print(f"strikes on all ranks: {strikes}")
        print(f"updates skipped on all ranks: {skipped}")
        print(f"synchronisations: {attached.syncs}")
        print(f"divergence: {divergence:.3e}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--unprotected", action="store_true", help="the same faults without the mitigations")
    options = parser.parse_args()
    dist.init_process_group("gloo")
    main(options.steps, unprotected=options.unprotected)
    dist.barrier()
    dist.destroy_process_group()
