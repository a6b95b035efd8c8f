"""What one rank of a test does, in a thread or a process: build, wrap in DDP, attach, train, hand in what came out."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from paftbench.attachment.checks import Wanted
from paftbench.attachment.facade import Attachment
from paftbench.attachment.hooks import hook_up
from paftbench.errors import Refused
from paftbench.faults.fault import Fault
from paftbench.faults.injector import Strikes
from paftbench.mitigations.contract import Mitigation
from paftbench.testing.curve import curve_of
from paftbench.testing.streams import seed_streams

Build = Callable[[], Any]
Train = Callable[..., Any]


@dataclass(frozen=True, kw_only=True)
class Task:
    """A run as every rank is told of it."""

    train: Train
    build: Build
    faults: Sequence[Fault]
    mitigations: Sequence[Mitigation]
    seed: int
    fault_seed: int
    accumulation: int
    exact: bool
    ddp: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a rank hands in: its curve, its strikes, its parameters as they ended."""

    curve: list[float]
    strikes: Strikes
    parameters: dict[str, Tensor]
    steps: int
    syncs: int
    synced_last: bool
    extra_bytes: int


class RankProgress:
    """How far a rank is, for messages."""

    def __init__(self) -> None:
        self.part = "before build"
        self.attached: Attachment | None = None

    def __str__(self) -> str:
        if self.attached is None:
            return self.part
        return f"{self.part}, after {self.attached.steps} completed steps"


@dataclass(kw_only=True)
class Owners:
    """Which rank of this process holds a parameter or an optimizer: no two may share one."""

    rank_of: dict[int, int] = field(default_factory=dict)
    held: list[object] = field(default_factory=list)

    def claim(self, rank: int, thing: object, what: str) -> None:
        """`ValueError` where another rank has the thing already."""
        owner = self.rank_of.setdefault(id(thing), rank)
        if owner != rank:
            raise Refused(f"build gave ranks {owner} and {rank} one {what}; it must make a new one each time")
        self.held.append(thing)


def run_rank(task: Task, rank: int, finish: Callable[[], None], progress: RankProgress, owners: Owners) -> Outcome:
    """The rank's outcome. `finish` returns when every rank has called it: training has ended on all of them."""
    progress.part = "in build"
    seed_streams("build", task.seed)
    model, optimizer, rest = _parts(task.build())
    for name, parameter in model.named_parameters():
        owners.claim(rank, parameter, f"parameter {name!r}")
    owners.claim(rank, optimizer, "optimizer")
    progress.part = "while DDP wrapped the model"
    ddp = DistributedDataParallel(model, **task.ddp)
    progress.part = "while paftbench attached"
    scaler: Any = next((part for part in rest if isinstance(part, torch.amp.GradScaler)), None)
    wanted = Wanted(
        faults=task.faults,
        mitigations=task.mitigations,
        seed=task.fault_seed,
        accumulation=task.accumulation,
        exact=task.exact,
    )
    hooks = hook_up(ddp, optimizer, scaler, wanted)
    progress.attached = attached = Attachment(hooks)
    progress.part = "in train"
    seed_streams("train", task.seed, rank)
    with attached:
        curve = curve_of(task.train(ddp, optimizer, *rest))
        progress.part = "at the end of training"
        finish()
    return Outcome(
        curve=curve,
        strikes=attached.strikes,
        parameters={name: value.detach().to("cpu", copy=True) for name, value in model.named_parameters()},
        steps=attached.steps,
        syncs=attached.syncs,
        synced_last=hooks.pipeline.measured.synced,
        extra_bytes=hooks.pipeline.extra_bytes,
    )


def _parts(built: Any) -> tuple[nn.Module, torch.optim.Optimizer, tuple[Any, ...]]:
    if not isinstance(built, tuple | list) or len(built) < 2:
        raise Refused(f"build must return (model, optimizer), got {_described(built)}")
    model, optimizer, *rest = built
    if isinstance(model, DistributedDataParallel):
        raise Refused("build returned a model in DistributedDataParallel; return it bare: each rank wraps its own")
    if not isinstance(model, nn.Module):
        raise Refused(f"build must return (model, optimizer), but the first is {_described(model)}")
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise Refused(f"build must return (model, optimizer), but the second is {_described(optimizer)}")
    return model, optimizer, tuple(rest)


def _described(thing: Any) -> str:
    return "None" if thing is None else f"a {type(thing).__name__}"
