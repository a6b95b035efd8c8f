"""What the oracles share: real trials on a quadratic, through the virtual engine, step by step. W = ranks."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from paftbench.faults.fault import Fault
from paftbench.mitigations.contract import Mitigation
from paftbench.ranks.axis import Ranks
from paftbench.records.trial import OptimizerConfig
from paftbench.training.optimizers import optimizer_of
from paftbench.training.virtual import Virtual
from paftbench.workloads.quadratic import Quadratic

LR, STD = 0.05, 0.3


@dataclass(frozen=True, kw_only=True)
class Course:
    """Divergence per step after the update and its synchronisation; `before` is None where a step had none."""

    after: list[float]
    before: list[float | None]
    virtual: Virtual


def quadratic(
    *,
    dim: int,
    world_size: int = 4,
    curvature: float = 0.0,
    dtype: torch.dtype = torch.float32,
    optimizer: str = "sgd",
    lr: float = LR,
    momentum: float = 0.0,
    weight_decay: float = 0.0,
    faults: Sequence[Fault] = (),
    mitigations: Sequence[Mitigation] = (),
    exact: bool = False,
) -> Virtual:
    """W replicas of a bowl without data noise: the shared gradient is curvature (theta - 1)."""
    torch.manual_seed(0)
    config = OptimizerConfig(name=optimizer, lr=lr, momentum=momentum, weight_decay=weight_decay)
    virtual = Virtual(
        Quadratic(dim=dim).model().to(dtype), optimizer_of(config), Ranks.virtual(world_size, exact=exact),
        rank_seeds=range(world_size), faults=faults, mitigations=mitigations,
    )  # fmt: skip
    virtual.pipeline.measuring = True
    virtual.curvature = curvature  # type: ignore[attr-defined]
    return virtual


def loss_of(virtual: Virtual) -> Callable[[nn.Module, int], Tensor]:
    workload = Quadratic(dim=virtual.layout.size, curvature=virtual.curvature)  # type: ignore[attr-defined]
    return lambda module, rank: workload.loss(module, (torch.empty(0),))


def step(virtual: Virtual) -> None:
    virtual.backward(loss_of(virtual))
    virtual.update()


def course(virtual: Virtual, steps: int) -> Course:
    after, before = [], []
    for _ in range(steps):
        step(virtual)
        measured = virtual.pipeline.measured
        assert measured.divergence is not None
        after.append(measured.divergence)
        before.append(measured.divergence_before)
    return Course(after=after, before=before, virtual=virtual)


def weights(virtual: Virtual) -> Tensor:
    """Live parameters of all ranks [W, N]."""
    (block,) = virtual.replicas.parameters
    return block
