"""The fields of a trial, each with its one default, and their validation.

`Trial.spec()` and `parse_trial` are inverses: the resolved mapping is what `trial.json` holds and what the id hashes.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import ceil, isfinite
from typing import Any, Literal

import torch

from paftbench.building import build, field_values, list_of, mapping_of
from paftbench.errors import Refused
from paftbench.faults.fault import Fault, check_faults, fault_spec, parse_fault
from paftbench.faults.schedules import Steps
from paftbench.mitigations.contract import Mitigation
from paftbench.plugins import build_named, spec_of
from paftbench.workloads.contract import DataId, Workload

SCHEMA = 1
SEEDS = 2**63  # what a key of random draws holds
MOST = 2**53  # of steps, ranks and items: beyond, floats do not count
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass(frozen=True, kw_only=True)
class OptimizerConfig:
    """Which optimizer; `momentum` is sgd's, `betas` and `eps` are adam's and adamw's."""

    name: Literal["sgd", "adam", "adamw"] = "sgd"
    lr: float = 0.1
    momentum: float = 0.9
    weight_decay: float = 1e-4
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8

    def __post_init__(self) -> None:
        for name in ("lr", "momentum", "weight_decay", "eps"):
            value = getattr(self, name)
            if not (isfinite(value) and value >= 0):
                raise Refused(f"{name} must be a finite number >= 0, got {value!r}")
        if not all(0 <= beta < 1 for beta in self.betas):
            raise Refused(f"betas must be within [0, 1), got {self.betas!r}")

    @property
    def state_kinds(self) -> tuple[str, ...]:
        """The element-wise state that the optimizer keeps, by torch's names."""
        if self.name == "sgd":
            return ("momentum_buffer",) if self.momentum else ()
        return ("exp_avg", "exp_avg_sq")


@dataclass(frozen=True, kw_only=True)
class LrSchedule:
    """How the learning rate goes: linear warm-up over `warmup` steps, then `name`; `training/optimizers.py` has it."""

    name: Literal["constant", "linear", "cosine", "step"] = "constant"
    warmup: int = 0
    milestones: tuple[float, ...] = (0.5, 0.75)
    gamma: float = 0.1

    def __post_init__(self) -> None:
        if self.warmup < 0:
            raise Refused(f"warmup (steps) must be >= 0, got {self.warmup}")
        if any(not 0 < milestone < 1 for milestone in self.milestones):
            raise Refused(f"milestones (shares of the steps) must be within (0, 1), got {self.milestones!r}")
        if not (isfinite(self.gamma) and self.gamma >= 0):
            raise Refused(f"gamma (factor at each milestone) must be a finite number >= 0, got {self.gamma!r}")


@dataclass(frozen=True, kw_only=True)
class CheckpointConfig:
    """How often an unfinished trial saves itself; 0 is never."""

    every: int = 0

    def __post_init__(self) -> None:
        if self.every < 0:
            raise Refused(f"every (steps between checkpoints) must be >= 0, got {self.every}")


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One training run, wholly described."""

    workload: Workload
    world_size: int = 4
    batch_per_rank: int = 32
    steps: int = 400
    epochs: float | None = None
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    lr_schedule: LrSchedule = field(default_factory=LrSchedule)
    precision: Literal["fp32", "bf16", "fp16"] = "fp32"
    placement: Literal["virtual", "torchrun"] = "virtual"
    procs: int | None = None
    nodes: int = 1
    device: Literal["auto", "cpu", "cuda"] = "auto"
    exact: bool = False
    eval_every: int = 50
    measure_every: int | None = None
    checkpoint: CheckpointConfig = field(default_factory=CheckpointConfig)
    timeout_s: float = 600.0
    seed: int = 0
    fault_seed: int | None = None
    faults: tuple[Fault, ...] = ()
    mitigations: tuple[Mitigation, ...] = ()

    def __post_init__(self) -> None:
        for name in ("world_size", "batch_per_rank", "steps", "nodes", "eval_every"):
            if getattr(self, name) < 1:
                raise Refused(f"{name} must be >= 1, got {getattr(self, name)}")
            if getattr(self, name) > MOST:
                raise Refused(f"{name} must be at most 2**53, got {getattr(self, name)}")
        if self.epochs is not None and not (isfinite(self.epochs) and self.epochs > 0):
            raise Refused(f"epochs must be a number > 0, got {self.epochs!r}")
        if self.measure_every is not None and self.measure_every < 1:
            raise Refused(f"measure_every (steps) must be >= 1, got {self.measure_every}")
        if not (isfinite(self.timeout_s) and self.timeout_s > 0):
            raise Refused(f"timeout_s must be > 0, got {self.timeout_s!r}")
        if not all(0 <= seed < SEEDS for seed in (self.seed, self.faults_seed)):
            raise Refused(f"seed and fault_seed must be within [0, 2**63), got {self.seed} and {self.fault_seed}")
        self._check_processes()
        self._check_faults()
        self._check_mitigations()

    def _check_processes(self) -> None:
        if self.procs is None:
            return
        if self.placement != "torchrun":
            raise Refused(f"procs (processes of a torchrun trial) needs placement torchrun, got {self.placement!r}")
        if self.procs < 1 or self.world_size % self.procs:
            raise Refused(f"procs must divide world_size {self.world_size}, got {self.procs}")

    def _check_faults(self) -> None:
        check_faults(self.faults, self.world_size)
        for fault in self.faults:
            try:
                fault.model.check(DTYPES[self.precision])
            except ValueError as error:
                raise Refused(f"fault {fault.name!r}: {error}") from None
            if isinstance(fault.schedule, Steps) and self.epochs is None:
                for step in fault.schedule.steps:
                    if step >= self.steps:
                        raise Refused(f"fault {fault.name!r}: step {step} is beyond the trial's {self.steps} steps")

    def _check_mitigations(self) -> None:
        names = [mitigation.name for mitigation in self.mitigations]
        for name in names:
            if names.count(name) > 1:
                raise Refused(
                    f"mitigations: {name} is given twice, and fields are addressed by that name; give it once"
                )
        aggregating = [m.name for m in self.mitigations if m.aggregates]
        if len(aggregating) > 1:
            raise Refused(f"mitigations: at most one may aggregate, got {', '.join(aggregating)}")

    @property
    def processes(self) -> int:
        """Processes that run the trial: 1 when virtual."""
        return (self.procs or self.world_size) if self.placement == "torchrun" else 1

    @property
    def measured_every(self) -> int:
        """`measure_every`, or its default for the placement."""
        return self.measure_every or (1 if self.placement == "virtual" else 50)

    @property
    def faults_seed(self) -> int:
        return self.seed if self.fault_seed is None else self.fault_seed

    def resolved(self, *, device: Literal["cpu", "cuda"]) -> "Trial":
        """The trial with nothing left to derive: epochs as steps, the device and the fault seed fixed."""
        steps = self.steps
        if self.epochs is not None:
            exact = self.epochs * self.workload.train_items() / (self.world_size * self.batch_per_rank)
            if exact > MOST:
                raise Refused(f"epochs {self.epochs:g} are more than 2**53 steps")
            steps = ceil(exact)
        procs = self.processes if self.placement == "torchrun" else None
        chosen = device if self.device == "auto" else self.device
        return replace(
            self, steps=steps, epochs=None, procs=procs, device=chosen,
            measure_every=self.measured_every, fault_seed=self.faults_seed,
        )  # fmt: skip

    def spec(self) -> dict[str, Any]:
        """Every field as plain JSON values."""
        values = field_values(self)
        for name in ("optimizer", "lr_schedule", "checkpoint"):
            values[name] = {k: list(v) if isinstance(v, tuple) else v for k, v in field_values(values[name]).items()}
        values["workload"] = spec_of(self.workload)
        values["faults"] = [fault_spec(fault) for fault in self.faults]
        values["mitigations"] = [spec_of(mitigation) for mitigation in self.mitigations]
        return values

    def id(self, data: DataId) -> str:
        """First 16 hex digits of SHA-256 over the sorted JSON of a resolved trial and its data's fingerprint."""
        identity = {**self.spec(), "data": {"name": data.name, "sha256": data.sha256}}
        text = json.dumps(identity, sort_keys=True, separators=(",", ":"), allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def parse_trial(spec: Mapping[str, Any], where: str = "trial") -> Trial:
    """A validated trial from plain values; errors are `ValueError` or `LookupError` of one line."""
    values = mapping_of(spec, where, Trial.__dataclass_fields__)
    for name, cls in (("optimizer", OptimizerConfig), ("lr_schedule", LrSchedule), ("checkpoint", CheckpointConfig)):
        if name in values:
            values[name] = build(cls, values[name], f"{where}.{name}")
    values["workload"] = build_named("workloads", values.get("workload", {}), f"{where}.workload")
    faults = list_of(values.get("faults"), f"{where}.faults")
    values["faults"] = tuple(parse_fault(fault, f"{where}.faults[{i}]") for i, fault in enumerate(faults))
    given = list_of(values.get("mitigations"), f"{where}.mitigations")
    values["mitigations"] = tuple(
        build_named("mitigations", mitigation, f"{where}.mitigations[{i}]") for i, mitigation in enumerate(given)
    )
    return build(Trial, values, where)
