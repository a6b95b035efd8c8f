"""`result.json`: what came out of a trial. None is what was not measured. Importable without torch."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Annotated, Any, Literal

from paftbench.records.door import SCHEMA, plain, wrong
from paftbench.records.environment import Environment
from paftbench.records.kinds import AnyText, Count, Finite, Flag, Id, Number, Positive, Scalar, Text, one_of
from paftbench.records.outcome import FAILED, OUTCOMES
from paftbench.records.plan import VIEWS, Data, Judge, Plan


@dataclass(frozen=True, kw_only=True)
class Metric:
    """The workload's metric, and its value at the end by each view; `examples` is how many it is the mean of."""

    name: Text | None = None
    direction: Annotated[Literal["max", "min"], one_of(("max", "min"))] | None = None
    chance: Number | None = None
    untrained: Number | None = None
    examples: Positive | None = None
    mean_model: Number | None = None
    worst_rank: Number | None = None
    rank0: Number | None = None

    def of(self, view: Judge) -> float | None:
        return getattr(self, view)


@dataclass(frozen=True, kw_only=True)
class History:
    """The metric after so many completed steps, by each view."""

    step: tuple[Count, ...] = ()
    mean_model: tuple[Number, ...] = ()
    worst_rank: tuple[Number, ...] = ()
    rank0: tuple[Number, ...] = ()

    def of(self, view: Judge) -> tuple[float, ...]:
        return getattr(self, view)


@dataclass(frozen=True, kw_only=True)
class Divergence:
    """How far replicas drifted: after the last step, at most, and before synchronisations in the middle."""

    final: Number | None = None
    max: Number | None = None
    before_sync: Number | None = None


@dataclass(frozen=True, kw_only=True)
class Course:
    """A measure of steps: the median step's and the worst step's."""

    median: Number | None = None
    max: Number | None = None


@dataclass(frozen=True, kw_only=True)
class StrikeCounts:
    """Counts over all ranks and steps."""

    drawn: Count | None = None
    landed: Count | None = None
    changed: Count | None = None


@dataclass(frozen=True, kw_only=True)
class Mitigated:
    """What mitigations did, and what one rank put into their collectives."""

    syncs: Count | None = None
    periods: tuple[Finite, ...] | None = None
    bytes: Count | None = None
    collectives: Count | None = None
    memory_bytes: Count | None = None


@dataclass(frozen=True, kw_only=True)
class Time:
    """Seconds of a step, of the whole trial, and of its parts; whether the steps' may be held against others."""

    step_median_s: Number | None = None
    step_max_s: Number | None = None
    total_s: Number | None = None
    overhead_valid: Flag | None = None
    sections: dict[Text, Number] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Seeds:
    """Those of a trial."""

    seed: Count | None = None
    fault_seed: Count | None = None


@dataclass(frozen=True, kw_only=True)
class Result:
    """What became of a trial; one that ended by itself has all that it is judged by."""

    schema: int = SCHEMA
    id: Id
    name: Text = ""
    experiment: Text = ""
    grid: Text = ""
    labels: dict[Text, Scalar] = field(default_factory=dict)
    outcome: Annotated[str, one_of(OUTCOMES)]
    reason: AnyText | None = None
    bitwise_identical: Flag | None = None
    golden_id: Id | None = None
    metric: Metric
    stopped_at: Positive | None = None
    history: History
    divergence: Divergence
    inconsistency: Course
    nsr: Course
    strikes: StrikeCounts
    mitigation: Mitigated
    gradient_bytes: Count | None = None
    time: Time
    params_sha256: tuple[Text, ...] = ()
    seeds: Seeds = field(default_factory=Seeds)
    data: Data | None = None
    parameters: Count | None = None
    environment: Environment

    def __post_init__(self) -> None:
        if self.outcome in OUTCOMES and self.outcome not in FAILED:
            for name, part, keys in (
                ("strikes", self.strikes, ("drawn", "landed", "changed")),
                ("metric", self.metric, ("name", "direction", "chance", *VIEWS)),
            ):
                for key in keys:
                    if getattr(part, key) is None:
                        raise wrong(f"{name}.{key}", f"must be there for a trial that is {self.outcome}", None)
        steps = self.history.step
        if any(later <= earlier for earlier, later in pairwise(steps)):
            raise wrong("history.step", "must rise", list(steps))
        for view in VIEWS:
            if len(self.history.of(view)) != len(steps):
                raise wrong(f"history.{view}", "must hold a number for each of its steps", list(self.history.of(view)))


def unmeasured(planned: Plan, outcome: str, reason: str | None = None) -> Result:
    """The result of a planned trial of which nothing was measured."""
    return Result(
        id=planned.id, name=planned.name, experiment=planned.experiment, grid=planned.grid, labels=planned.labels,
        outcome=outcome, reason=reason, golden_id=planned.golden_id, metric=Metric(), history=History(),
        divergence=Divergence(), inconsistency=Course(), nsr=Course(), strikes=StrikeCounts(), mitigation=Mitigated(),
        time=Time(), seeds=Seeds(seed=planned.trial.seed, fault_seed=planned.trial.fault_seed), data=planned.data,
        environment=Environment(),
    )  # fmt: skip


def written(result: Result) -> Mapping[str, Any]:
    """What `result.json` holds."""
    values: dict[str, Any] = plain(result)
    if result.outcome in FAILED:
        values["metric"].pop("examples")  # such a record has never said how many there would have been
    return values
