"""A loop for Hugging Face Accelerate, with bit flips on one rank; clipping and PAFT-Sync against them.

    torchrun --standalone --nproc-per-node 2 examples/accelerate_loop.py
    torchrun --standalone --nproc-per-node 2 examples/accelerate_loop.py --unprotected

`Accelerator.prepare` wraps the model in DDP, so what it returns can be attached. Under `accumulate` all backward passes
but the last are local and do not count: a step is an optimizer step, and `accumulation` stays 1.
"""

import argparse
from itertools import cycle, islice

import torch
import torch.distributed as dist
from accelerate import Accelerator
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import paftbench

FAULTS = [paftbench.Fault("bit_flip", degree=1e-2, unit="per_element", site="result", ranks=[1])]
MITIGATIONS = [
    paftbench.Mitigation("clip_value", limit=0.1),
    paftbench.Mitigation("paft_sync", period=5, state="all"),
]

MICRO_BATCHES = 2


class ConvNet(nn.Module):
    """Which quarter of a picture holds the bright spot?"""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2))
        self.head = nn.Linear(8 * 4 * 4, 4)

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.head(self.features(images).flatten(1))
        return logits


def dataset() -> TensorDataset:
    generator = torch.Generator().manual_seed(1)
    images = torch.randn(1024, 1, 8, 8, generator=generator)
    labels = torch.randint(0, 4, (1024,), generator=generator)
    for image, label in zip(images[:, 0], labels.tolist(), strict=True):
        image[4 * (label // 2) :, 4 * (label % 2) :][:4, :4] += 0.6
    return TensorDataset(images, labels)


def build() -> tuple[Accelerator, nn.Module, torch.optim.Optimizer, DataLoader]:
    torch.manual_seed(0)
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=MICRO_BATCHES)
    model = ConvNet()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    loader = DataLoader(dataset(), batch_size=16, drop_last=True)
    return accelerator, *accelerator.prepare(model, optimizer, loader)


def train(
    accelerator: Accelerator, model: nn.Module, optimizer: torch.optim.Optimizer, loader: DataLoader, steps: int
) -> None:
    model.train()
    for number, (images, labels) in enumerate(islice(cycle(loader), steps * MICRO_BATCHES)):
        with accelerator.accumulate(model):
            loss = nn.functional.cross_entropy(model(images), labels)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
        if number % (10 * MICRO_BATCHES) == 10 * MICRO_BATCHES - 1:
            accelerator.print(f"step {(number + 1) // MICRO_BATCHES:3d}  loss {loss.item():.3f}")


@torch.no_grad()
def accuracy(model: nn.Module) -> float:
    images, labels = dataset().tensors
    return float((model(images).argmax(dim=1) == labels).float().mean())


def main(steps: int = 40, *, unprotected: bool = False) -> None:
    accelerator, model, optimizer, loader = build()
    mitigations = [] if unprotected else MITIGATIONS
    with paftbench.attach(model, optimizer, faults=FAULTS, mitigations=mitigations, seed=0) as attached:
        train(accelerator, model, optimizer, loader, steps)
    divergence = attached.divergence()
    strikes = accelerator.gather(torch.tensor([attached.strikes.landed]))
    accuracies = accelerator.gather(torch.tensor([accuracy(accelerator.unwrap_model(model))]))
    accelerator.print(f"accuracy of each rank: {' '.join(f'{one:.3f}' for one in accuracies.tolist())}")
    accelerator.print(f"strikes on each rank: {' '.join(str(one) for one in strikes.tolist())}")
    accelerator.print(f"synchronisations: {attached.syncs}")
    accelerator.print(f"divergence: {divergence:.3e}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--unprotected", action="store_true", help="the same faults without the mitigations")
    options = parser.parse_args()
    main(options.steps, unprotected=options.unprotected)
    dist.barrier()
    dist.destroy_process_group()
