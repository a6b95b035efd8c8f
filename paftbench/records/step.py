"""A row of `steps.jsonl`. None is what was not measured."""

from dataclasses import dataclass, field

from paftbench.errors import Refused
from paftbench.records.kinds import Count, Finite, Flag, Number, Open, Text


@dataclass(frozen=True, kw_only=True)
class DecisionRow(Open):
    """A period that a mitigation chose, and what from; more stands in `fields`."""

    period: Finite
    period_before: Finite
    sigma: Number | None
    layer: Text | None = None
    rule: Text | None = None


@dataclass(frozen=True, kw_only=True)
class StepRow:
    """What was measured of a step; `loss` is each rank's, `seconds` by section."""

    step: Count
    loss: tuple[Number, ...]
    lr: Number
    grad_norm: Number | None = None
    divergence: Number | None
    divergence_before: Number | None = None
    inconsistency: Number | None = None
    nsr: Number | None = None
    synced: Flag | None = None
    period: Number | None = None
    decision: DecisionRow | None = None
    strikes: Number | None = None
    seconds: dict[Text, Number] | None = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.loss:
            raise Refused("loss must hold a number per rank, got none")
