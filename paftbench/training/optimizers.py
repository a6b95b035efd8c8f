"""A trial's optimizer and its learning rate at each step."""

from bisect import bisect_right
from collections.abc import Callable
from math import cos, pi

import torch
from torch import nn

from paftbench.records.trial import LrSchedule, OptimizerConfig
from paftbench.training.half_optimizers import HALVES, HalfAdam, HalfSGD


def optimizer_of(config: OptimizerConfig) -> Callable[[list[nn.Parameter]], torch.optim.Optimizer]:
    """A maker of the configured optimizer; never `fused`, whose results differ from the plain loop's in bits.

    In bf16 and fp16, where torch's own results differ by an element's place, it is one of `half_optimizers.py`.
    """

    def make(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
        half = any(parameter.dtype in HALVES for parameter in parameters)
        if config.name == "sgd":
            sgd = HalfSGD if half else torch.optim.SGD
            return sgd(parameters, lr=config.lr, momentum=config.momentum, weight_decay=config.weight_decay)
        adam = HalfAdam if half else torch.optim.Adam
        cls = adam if config.name == "adam" else torch.optim.AdamW
        return cls(parameters, lr=config.lr, betas=config.betas, eps=config.eps, weight_decay=config.weight_decay)

    return make


def lr_at(step: int, steps: int, base: float, schedule: LrSchedule) -> float:
    """Learning rate of a step: a linear warm-up reaching `base` at its last step, then the named course.

    `linear` and `cosine` would reach 0 just after the last step; `step` multiplies by `gamma` at each milestone, given
    as a share of the steps after the warm-up.
    """
    if step < schedule.warmup:
        return base * (step + 1) / schedule.warmup
    progress = (step - schedule.warmup) / max(1, steps - schedule.warmup)
    if schedule.name == "linear":
        return base * (1.0 - progress)
    if schedule.name == "cosine":
        return base * 0.5 * (1.0 + cos(pi * progress))
    if schedule.name == "step":
        return base * schedule.gamma ** bisect_right(schedule.milestones, progress)
    return base


def set_lr(optimizer: torch.optim.Optimizer, lr: float) -> None:
    """Set every group's learning rate."""
    for group in optimizer.param_groups:
        group["lr"] = lr
