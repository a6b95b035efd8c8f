"""The training loop, the same in every placement."""

from collections.abc import Callable, Sequence
from math import isfinite
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from paftbench.ranks.replicas import Replicas
from paftbench.records.trial import DTYPES, Trial
from paftbench.step.metrics import all_finite
from paftbench.step.pipeline import Pipeline
from paftbench.training.optimizers import lr_at, set_lr
from paftbench.training.ours import ours
from paftbench.training.quality import measure
from paftbench.training.recorder import Recorder
from paftbench.training.virtual import LossOf

LOST_EVERY = 10  # steps from one look at whether anything is left to train to the next


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
    """Run the steps from `start` on; `save` is called with the number of completed steps when a checkpoint is due.

    A trial whose parameters are not finite on any rank ends early: no update makes them finite again.
    """
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
        last = done == trial.steps or (done % LOST_EVERY == 0 and lost(trial, placement, losses))
        if last:
            pipeline.flush()
        if done % trial.eval_every == 0 or last:
            with clock.section("evaluate"):
                recorder.quality(done, measure(trial.workload, placement.replicas, placement.spare))
        recorder.step(step, losses, lr, pipeline)
        if last:
            break
        if trial.checkpoint.every and done % trial.checkpoint.every == 0:
            save(done)
    recorder.flush()


def lost(trial: Trial, placement: Placement, losses: Sequence[float]) -> bool:
    """Whether no rank has finite parameters any more, and no mitigation could bring them back; all ranks must ask."""
    if any(mitigation.restores for mitigation in trial.mitigations):
        return False
    replicas = placement.replicas
    alive = [
        isfinite(loss) or all_finite([block[row] for block in replicas.parameters]) for row, loss in enumerate(losses)
    ]
    return not replicas.ranks.any(alive)


def losses_of(trial: Trial, placement: Placement) -> Callable[[nn.Module, int, int], Tensor]:
    """(module, rank, step) -> loss of the rank's batch, on the replicas' device and in their precision."""
    workload, clock = trial.workload, placement.pipeline.clock
    device = placement.replicas.parameters[0].device
    dtype = DTYPES[trial.precision]
    with ours("data"):
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
