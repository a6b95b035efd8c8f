"""The training loop, the same in every placement."""

from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from paftbench.config import DTYPES, Trial
from paftbench.optimizers import lr_at, set_lr
from paftbench.pipeline import Pipeline
from paftbench.quality import measure
from paftbench.records import Recorder
from paftbench.replicas import Replicas
from paftbench.virtual import LossOf


class Placement(Protocol):
    """What the loop needs of the ranks, wherever they live."""

    pipeline: Pipeline
    replicas: Replicas
    optimizer: torch.optim.Optimizer
    spare: nn.Module

    def backward(self, loss_of: LossOf) -> list[float]: ...
    def update(self) -> None: ...
    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, saved: dict[str, Any]) -> None: ...


def train(trial: Trial, placement: Placement, recorder: Recorder, *, start: int, save: Callable[[int], None]) -> None:
    """Run the steps from `start` on; `save` is called with the number of completed steps when a checkpoint is due."""
    pipeline, clock = placement.pipeline, placement.pipeline.clock
    loss_of = losses_of(trial, placement)
    if start == 0:
        recorder.quality(0, measure(trial.workload, placement.replicas, placement.spare))
    for step in range(start, trial.steps):
        done = step + 1
        lr = lr_at(step, trial.steps, trial.optimizer.lr, trial.lr_schedule)
        set_lr(placement.optimizer, lr)
        pipeline.measuring = done % trial.measured_every == 0 or done == trial.steps
        losses = placement.backward(lambda model, rank, step=step: loss_of(model, rank, step))  # type: ignore[misc]
        placement.update()
        if done == trial.steps:
            pipeline.flush()
        if done % trial.eval_every == 0 or done == trial.steps:
            with clock.section("evaluate"):
                recorder.quality(done, measure(trial.workload, placement.replicas, placement.spare))
        recorder.step(step, losses, lr, pipeline)
        if trial.checkpoint.every and done % trial.checkpoint.every == 0 and done < trial.steps:
            save(done)
    recorder.flush()


def losses_of(trial: Trial, placement: Placement) -> Callable[[nn.Module, int, int], Tensor]:
    """(module, rank, step) -> loss of the rank's batch, on the replicas' device and in their precision."""
    workload, clock = trial.workload, placement.pipeline.clock
    device = placement.replicas.parameters[0].device
    dtype = DTYPES[trial.precision]
    shards = {
        rank: workload.shard(rank, trial.world_size, trial.batch_per_rank, trial.seed)
        for rank in placement.replicas.ranks.local
    }

    def loss_of(module: nn.Module, rank: int, step: int) -> Tensor:
        with clock.section("data"):
            batch = tuple(
                part.to(device, dtype if part.is_floating_point() else None) for part in shards[rank].batch(step)
            )
        return workload.loss(module, batch)

    return loss_of
