"""`trial.json`: what a trial was planned to be, as readers see it. Importable without torch."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal, get_args

from paftbench.records.door import SCHEMA
from paftbench.records.kinds import (
    AnyText,
    Count,
    Finite,
    Flag,
    Id,
    Kind,
    Open,
    Positive,
    Scalar,
    Text,
    Whole,
    one_of,
)

Judge = Literal["mean_model", "worst_rank", "rank0"]
VIEWS = get_args(Judge)


@dataclass(frozen=True, kw_only=True)
class ScheduleFields:
    """When a fault strikes, where it is more than a word."""

    kind: Text
    p: Finite | None = None
    every: Positive | None = None
    offset: Whole = 0
    length: Whole = 1

    def __post_init__(self) -> None:
        if (self.kind == "probability" and self.p is None) or (self.kind == "burst" and self.every is None):
            raise ValueError(f"a schedule of the kind {self.kind} lacks a number")


@dataclass(frozen=True, kw_only=True)
class SomeRanks:
    """So many ranks, drawn anew at each strike."""

    random: Count


@dataclass(frozen=True, kw_only=True)
class FaultFields(Open):
    """A fault of a plan; fields of its model stand in `fields`."""

    name: Text
    model: Text
    degree: Finite | None = None
    unit: Text | None = None
    site: Text | None = None
    parameters: Any = None
    ranks: Annotated[str | tuple[Count, ...] | SomeRanks | None, Kind("all, a list of ranks or {random: k}")] = None
    schedule: Annotated[Text | ScheduleFields | None, Kind("a schedule")] = None


@dataclass(frozen=True, kw_only=True)
class MitigationFields(Open):
    """A mitigation of a plan, of anybody's: but for the name, its fields are of any kind."""

    name: Text
    period: Any = None
    period_min: Any = None
    period_max: Any = None
    overlap: Any = None
    state: Any = None


@dataclass(frozen=True, kw_only=True)
class WorkloadFields(Open):
    """The workload of a plan, of anybody's: but for the name, its fields are of any kind."""

    name: Text
    size: Any = None
    data: Any = None


@dataclass(frozen=True, kw_only=True)
class OptimizerFields(Open):
    """The optimizer of a plan."""

    name: Text
    lr: Finite
    momentum: Finite | None = None
    weight_decay: Finite | None = None


@dataclass(frozen=True, kw_only=True)
class TrialFields(Open):
    """The resolved fields of a trial; `records.trial.Trial` is what they make."""

    workload: WorkloadFields
    world_size: Positive
    steps: Positive
    optimizer: OptimizerFields
    seed: Count
    faults: tuple[FaultFields, ...]
    mitigations: tuple[MitigationFields, ...]
    precision: Annotated[str, one_of(("fp64", "fp32", "bf16", "fp16"))] | None = None
    placement: Text | None = None
    device: Text | None = None
    exact: Flag | None = None
    batch_per_rank: Positive | None = None
    procs: Count | None = None
    fault_seed: Count | None = None


@dataclass(frozen=True, kw_only=True)
class Data:
    """What was trained on, by its fingerprint."""

    name: Text
    sha256: Text


@dataclass(frozen=True, kw_only=True)
class Plan:
    """One planned trial; `golden_id` is `None` for a golden run and where the experiment has none."""

    schema: int = SCHEMA
    id: Id
    name: Text
    experiment: Text
    grid: Text
    labels: dict[Text, Scalar]
    golden_id: Id | None
    judge: Annotated[Judge, one_of(VIEWS)]
    tolerance: Finite
    plugins: tuple[AnyText, ...]
    sources: dict[Text, Text]
    data: Data
    trial: TrialFields
