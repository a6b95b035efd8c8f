"""The same training once more, in plain torch, to compare every bit with. Imports nothing of paftbench.

W whole replicas in one process, each with its own optimizer and random state; sums in ring order by explicit adds.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn


@dataclass(frozen=True, kw_only=True)
class Given:
    """What happens beside the training: strikes as logged, noise as tensors, the mitigations' settings."""

    strikes: Sequence[dict[str, Any]]
    noise: Callable[[str, int, int, str], Tensor]  # (site, step, rank, parameter) -> what is added there
    clip: float
    period: int
    sync_all: bool
    overlap: bool


def ring_mean(rows: Sequence[Tensor]) -> Tensor:
    """Rows times float32(1/W), then chunk c as row c + row c+1 + ... + row c-1."""
    world_size, size = len(rows), rows[0].numel()
    scaled = [row * (1.0 / world_size) for row in rows]
    mean = torch.empty_like(rows[0])
    for c in range(world_size):
        chunk = slice(c * size // world_size, (c + 1) * size // world_size)
        total = scaled[c][chunk]
        for hop in range(1, world_size):
            total = total + scaled[(c + hop) % world_size][chunk]
        mean[chunk] = total
    return mean


def consensus(rows: Sequence[Tensor]) -> Tensor:
    """Rank 0's row + the mean difference to it."""
    return rows[0] + ring_mean([row - rows[0] for row in rows])


def train(
    models: Sequence[nn.Module],
    optimizers: Sequence[torch.optim.Optimizer],
    seeds: Sequence[int],
    loss_of: Callable[[nn.Module, int, int], Tensor],
    steps: int,
    given: Given,
) -> None:
    """Train the replicas in place."""
    random = [torch.Generator().manual_seed(seed).get_state() for seed in seeds]
    named = [[(n, p) for n, p in model.named_parameters() if p.requires_grad] for model in models]
    pending: Tensor | None = None
    for step in range(steps):
        rows = []
        for rank, (model, optimizer) in enumerate(zip(models, optimizers, strict=True)):
            optimizer.zero_grad(set_to_none=True)
            torch.set_rng_state(random[rank])
            loss_of(model, rank, step).backward()
            random[rank] = torch.get_rng_state()
            _strike(named[rank], given.strikes, step, rank, "contribution")
            rows.append(
                torch.cat(
                    [torch.zeros_like(p).flatten() if p.grad is None else p.grad.flatten() for _, p in named[rank]]
                )
            )
        mean = ring_mean(rows)
        for rank in range(len(models)):
            start = 0
            for name, p in named[rank]:
                if p.grad is not None:
                    p.grad.copy_(mean[start : start + p.numel()].view_as(p))
                    p.grad += given.noise("result", step, rank, name).view_as(p)
                start += p.numel()
            _strike(named[rank], given.strikes, step, rank, "result")
            for _, p in named[rank]:
                if p.grad is not None:
                    p.grad.nan_to_num_(nan=0.0, posinf=None, neginf=None).clamp_(-given.clip, given.clip)
        if pending is not None:
            _load(models, named, optimizers, given, pending)
            pending = None
        for rank, optimizer in enumerate(optimizers):
            optimizer.step()
            _strike(named[rank], given.strikes, step, rank, "parameter")
            for name, p in named[rank]:
                p.detach().add_(given.noise("parameter", step, rank, name).view_as(p))
            _strike(named[rank], given.strikes, step, rank, "optimizer_state", optimizer)
        if (step + 1) % given.period == 0:
            parts = [_averaged(*replica, given) for replica in zip(models, named, optimizers, strict=True)]
            pending = consensus([torch.cat([part.flatten() for part in row]) for row in parts])
            if not given.overlap:
                _load(models, named, optimizers, given, pending)
                pending = None
    if pending is not None:
        _load(models, named, optimizers, given, pending)


def _averaged(model: nn.Module, named: Any, optimizer: torch.optim.Optimizer, given: Given) -> list[Tensor]:
    """What a synchronisation averages: parameters, then each kind of moment, then floating-point buffers."""
    parts = [p.detach() for _, p in named]
    if given.sync_all:
        for kind in ("momentum_buffer", "exp_avg", "exp_avg_sq"):
            parts += [optimizer.state[p][kind] for _, p in named if kind in optimizer.state.get(p, {})]
    return parts + [buffer for buffer in model.buffers() if buffer.is_floating_point() and buffer.numel()]


def _load(models: Any, named: Any, optimizers: Any, given: Given, mean: Tensor) -> None:
    for replica in zip(models, named, optimizers, strict=True):
        start = 0
        for part in _averaged(*replica, given):
            part.copy_(mean[start : start + part.numel()].view_as(part))
            start += part.numel()


def _strike(
    named: Any, strikes: Sequence[dict[str, Any]], step: int, rank: int, site: str, optimizer: Any = None
) -> None:
    """Write the logged bits; what stood there must be what the log says."""
    for strike in strikes:
        if (strike["step"], strike["rank"], strike["site"]) == (step, rank, site):
            name, _, kind = strike["parameter"].partition(":")
            p = dict(named)[name]
            struck = p.detach() if site == "parameter" else optimizer.state[p][kind] if kind else p.grad
            words = struck.view(-1).view(torch.int32)
            assert words[strike["index"]].item() & 0xFFFFFFFF == int(strike["bits_before"], 16), strike
            after = int(strike["bits_after"], 16)
            words[strike["index"]] = after - (1 << 32) if after >> 31 else after
