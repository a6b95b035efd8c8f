"""An ordinary DDP loop, with silent errors in the received gradients and PAFT-Sync against them.

    torchrun --standalone --nproc-per-node 2 examples/ddp_loop.py
    torchrun --standalone --nproc-per-node 2 examples/ddp_loop.py --unprotected

The learning rate follows a schedule, and the two parameter groups differ in weight decay. paftbench is the two lists
below and the `with` in `main`; model, data and loop know nothing of it.
"""

import argparse
from itertools import cycle, islice

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim.lr_scheduler import LRScheduler, OneCycleLR
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import paftbench

FAULTS = [paftbench.Fault("gaussian_noise", degree=3e-2, unit="std", site="result")]
MITIGATIONS = [paftbench.Mitigation("paft_sync", period=10)]

CLASSES, FEATURES = 5, 20


def dataset() -> TensorDataset:
    """Noisy points around one centre per class."""
    generator = torch.Generator().manual_seed(1)
    centres = torch.randn(CLASSES, FEATURES, generator=generator)
    labels = torch.randint(0, CLASSES, (2048,), generator=generator)
    points = centres[labels] + 1.5 * torch.randn(len(labels), FEATURES, generator=generator)
    return TensorDataset(points, labels)


def build(steps: int) -> tuple[DistributedDataParallel, torch.optim.Optimizer, LRScheduler]:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(FEATURES, 64), nn.LayerNorm(64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, CLASSES)
    )
    decayed = [parameter for parameter in model.parameters() if parameter.ndim > 1]
    others = [parameter for parameter in model.parameters() if parameter.ndim <= 1]
    groups = [{"params": decayed, "weight_decay": 1e-4}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.SGD(groups, lr=0.05, momentum=0.9)
    return DistributedDataParallel(model), optimizer, OneCycleLR(optimizer, max_lr=0.1, total_steps=steps)


def train(ddp: nn.Module, optimizer: torch.optim.Optimizer, scheduler: LRScheduler, steps: int) -> None:
    data = dataset()
    sampler = DistributedSampler(data, shuffle=True, seed=0)
    loader = DataLoader(data, batch_size=32, sampler=sampler, drop_last=True)
    for step, (points, labels) in enumerate(islice(cycle(loader), steps)):
        loss = nn.functional.cross_entropy(ddp(points), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        if step % 10 == 9 and dist.get_rank() == 0:
            print(f"step {step + 1:3d}  loss {loss.item():.3f}")


@torch.no_grad()
def accuracy(ddp: DistributedDataParallel) -> float:
    points, labels = dataset().tensors
    return float((ddp.module(points).argmax(dim=1) == labels).float().mean())


def main(steps: int = 60, *, unprotected: bool = False) -> None:
    ddp, optimizer, scheduler = build(steps)
    mitigations = [] if unprotected else MITIGATIONS
    with paftbench.attach(ddp, optimizer, faults=FAULTS, mitigations=mitigations, seed=0) as attached:
        train(ddp, optimizer, scheduler, steps)
    divergence = attached.divergence()
    if dist.get_rank() == 0:
        print(f"accuracy {accuracy(ddp):.3f}")
        print(f"strikes on rank 0: {attached.strikes.landed}")
        print(f"synchronisations: {attached.syncs}")
        print(f"divergence: {divergence:.3e}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--unprotected", action="store_true", help="the same faults without the mitigation")
    options = parser.parse_args()
    dist.init_process_group("gloo")
    main(options.steps, unprotected=options.unprotected)
    dist.destroy_process_group()
