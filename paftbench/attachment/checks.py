"""What can be attached: the DDP model and the optimizer behind what a user passes, or the reason why not."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import nn
from torch.amp.grad_scaler import GradScaler
from torch.nn.parallel import DistributedDataParallel

from paftbench.attachment.relay import uncompiled
from paftbench.errors import Refused
from paftbench.faults.fault import Fault
from paftbench.mitigations.contract import Mitigation

T = TypeVar("T")

SHARDED = "each parameter has one owner, so ranks cannot drift apart (the replicas of HSDP can: see docs/limits.md)"
REASONS = {
    "DataParallel": "one process holds one gradient, so no ranks could differ",
    "FullyShardedDataParallel": SHARDED,
    "FSDP": SHARDED,
    "DeepSpeedEngine": "it reduces gradients on its own, without a hook",
}
REFUSED = {
    "ZeroRedundancyOptimizer": "one rank updates a parameter and sends it to the others, so replicas cannot differ",
    "PostLocalSGDOptimizer": "it averages the parameters itself; use it, or paft_sync on the optimizer inside it",
    "LBFGS": "it evaluates the loss several times per update, and a step is one aggregation",
}


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What an attachment is to do; every rank must want the same."""

    faults: Sequence[Fault] = ()
    mitigations: Sequence[Mitigation] = ()
    seed: int = 0
    accumulation: int = 1
    exact: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "faults", listed("faults", self.faults, Fault))
        object.__setattr__(self, "mitigations", listed("mitigations", self.mitigations, Mitigation))
        whole("seed", self.seed)
        if whole("accumulation", self.accumulation) < 1:
            raise Refused(f"accumulation (backward passes per step) must be >= 1, got {self.accumulation}")


def ddp_of(model: object) -> DistributedDataParallel:
    """The DDP model, also of `torch.compile(ddp)`; `ValueError` with the reason for what is none."""
    ddp = uncompiled(model)
    if not isinstance(ddp, DistributedDataParallel):
        kind = type(ddp).__name__
        why = next((f": {reason}" for name, reason in REASONS.items() if kind.startswith(name)), "")
        raise Refused(f"the model must be wrapped in DistributedDataParallel, got {kind}{why}")
    named = ddp.module.named_parameters()
    ignored = sorted(name for name, parameter in named if parameter.requires_grad and name in ddp.parameters_to_ignore)
    if ignored:
        raise Refused(f"DDP leaves parameter {ignored[0]!r} to each rank; faults and mitigations need it reduced")
    reduced = ddp._get_ddp_logging_data()["num_parameter_tensors"]
    if reduced != (now := sum(parameter.requires_grad for parameter in ddp.module.parameters())):
        raise Refused(
            f"DDP reduces {reduced} parameters, and {now} of the model are trainable now: freeze and unfreeze before "
            "DDP wraps the model"
        )
    for name, module in ddp.module.named_modules():
        if getattr(module, "sparse", False) and isinstance(module, nn.Embedding | nn.EmbeddingBag):
            raise Refused(f"module {name!r} has sparse gradients, which have no flat indices; set sparse=False")
    return ddp


def real_optimizer(optimizer: object, scaler: GradScaler | None) -> torch.optim.Optimizer:
    """The optimizer whose `step` updates the parameters, without wrappers such as Accelerate's; `ValueError` if none.

    A wrapper that steps through a GradScaler which was not passed in is refused.
    """
    while isinstance(inner := getattr(optimizer, "optimizer", None), torch.optim.Optimizer):
        own = getattr(optimizer, "scaler", None)
        if scaler is None and isinstance(own, GradScaler) and own.is_enabled():
            raise Refused(
                f"the optimizer, a {type(optimizer).__name__}, steps through a GradScaler; pass it: attach(..., scaler)"
            )
        optimizer = inner
    kind = type(optimizer).__name__
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise Refused(f"the optimizer must be a torch.optim.Optimizer, got {kind}")
    if kind in REFUSED:
        raise Refused(f"optimizer {kind} cannot be attached: {REFUSED[kind]}")
    if not hasattr(optimizer, "_optimizer_step_post_hooks"):
        raise Refused(f"optimizer {kind} wraps another and its step hooks never run; pass the optimizer inside it")
    return optimizer


def listed(name: str, given: object, kind: type[T]) -> tuple[T, ...]:
    """The plugins of a list; `ValueError` for one alone, and for an iterator, which could be read only once."""
    if not isinstance(given, list | tuple) or not all(isinstance(one, kind) for one in given):
        raise Refused(f"{name} must be a list of paftbench.{kind.__name__}(...), got {given!r}")
    return tuple(given)


def whole(name: str, value: object) -> int:
    """A whole number; `ValueError` for what is none."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise Refused(f"{name} must be a whole number, got {value!r}")
    return value


def require_held(optimizer: torch.optim.Optimizer, named: Sequence[tuple[str, nn.Parameter]]) -> None:
    """`ValueError` where the optimizer does not update a parameter that DDP trains."""
    held = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
    for name, parameter in named:
        if id(parameter) not in held:
            raise Refused(
                f"the optimizer does not update parameter {name!r} of the model; one optimizer must hold all that DDP "
                "trains (lr 0 keeps a parameter as it is), or the parameter be frozen before DDP wraps the model"
            )
