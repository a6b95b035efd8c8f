"""A stranger's model and training loop, as `attach` finds them."""

import warnings
from collections.abc import Iterable
from contextlib import nullcontext
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

VOCAB, WIDTH = 23, 16


class Net(nn.Module):
    """A tied head, a frozen layer, and a branch that no step uses where `idle` is set.

    `checkpointed` layers forget their activations and are computed again in backward.
    """

    def __init__(self, *, idle: bool = False, checkpointed: bool = False) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCAB, WIDTH)
        self.frozen = nn.Linear(WIDTH, WIDTH).requires_grad_(False)
        self.idle = nn.Linear(WIDTH, 7) if idle else None
        self.layers = nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(4)))
        self.scale = nn.Parameter(torch.tensor(1.5))
        self.head = nn.Linear(WIDTH, VOCAB, bias=False)
        self.head.weight = self.embed.weight
        self.checkpointed = checkpointed

    def forward(self, tokens: Tensor) -> Tensor:
        hidden = torch.tanh(self.frozen(self.embed(tokens)))
        for layer in self.layers:
            out = checkpoint(layer, hidden, use_reentrant=False) if self.checkpointed else layer(hidden)
            hidden = hidden + torch.tanh(out)
        logits: Tensor = self.head(hidden * self.scale)
        return logits


def build(
    *, idle: bool = False, checkpointed: bool = False, dtype: torch.dtype = torch.float32, **options: Any
) -> DistributedDataParallel:
    """The model behind DDP in buckets of 2 KB, the same on every rank."""
    torch.manual_seed(5)
    return DistributedDataParallel(Net(idle=idle, checkpointed=checkpointed).to(dtype), bucket_cap_mb=0.002, **options)


def sgd(ddp: nn.Module, lr: float = 0.1) -> torch.optim.SGD:
    return torch.optim.SGD((p for p in ddp.parameters() if p.requires_grad), lr=lr, momentum=0.9)


def loss_of(model: nn.Module, step: int, part: int = 0) -> Tensor:
    """The loss of this rank's batch."""
    generator = torch.Generator().manual_seed(1000 * step + 10 * dist.get_rank() + part)
    tokens = torch.randint(0, VOCAB, (8, 2), generator=generator)
    return nn.functional.cross_entropy(model(tokens[:, 0]).float(), tokens[:, 1])


def train(
    ddp: Any, optimizer: torch.optim.Optimizer, steps: Iterable[int], *, rounds: int = 1, sync: str = "last"
) -> None:
    """The loop: `rounds` backward passes a step, all but the last in no_sync() where `sync` is "last"."""
    for step in steps:
        optimizer.zero_grad(set_to_none=True)
        for part in range(rounds):
            quiet = sync == "last" and part < rounds - 1
            with ddp.no_sync() if quiet else nullcontext():
                loss_of(ddp, step, part).backward()
        optimizer.step()


def bits(model: nn.Module) -> list[bytes]:
    """Every trainable parameter as it lies in memory."""
    return [
        p.detach().contiguous().view(-1).view(torch.uint8).numpy().tobytes()
        for p in model.parameters()
        if p.requires_grad
    ]


def silent_static_graph() -> None:
    """DDP's static graph warns about a stream on machines without one; not ours to fix."""
    warnings.filterwarnings("ignore", message=".*static_graph.*")
