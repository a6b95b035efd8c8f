"""When a fault strikes. Steps count from 0."""

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

from paftbench.building import build, field_values
from paftbench.errors import Refused
from paftbench.faults.draws import generator_of
from paftbench.suggest import brief, did_you_mean


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """Chooses steps; the ranks, elements and values are the fault's affair."""

    kind: ClassVar[str]

    def strikes(self, step: int, key: tuple[int | str, ...]) -> bool:
        """Whether the fault strikes at `step`; `key` names the stream of a schedule that draws."""
        return True

    def count(self, start: int, stop: int) -> float:
        """How many steps of [start, stop) are struck, or are expected to be; in closed form, for forecasts."""
        return float(stop - start)


@dataclass(frozen=True, kw_only=True)
class EveryStep(Schedule):
    """Each step."""

    kind = "every_step"


@dataclass(frozen=True, kw_only=True)
class Probability(Schedule):
    """Each step with probability `p`, all of the fault's ranks together."""

    kind = "probability"
    p: float

    def __post_init__(self) -> None:
        if not 0.0 <= self.p <= 1.0:
            raise Refused(f"p (probability of a strike at a step) must be within [0, 1], got {self.p!r}")

    def strikes(self, step: int, key: tuple[int | str, ...]) -> bool:
        return bool(generator_of(*key, "schedule").random() < self.p)

    def count(self, start: int, stop: int) -> float:
        return self.p * (stop - start)


@dataclass(frozen=True, kw_only=True)
class Burst(Schedule):
    """`length` steps in a row out of `every`: those with (t - offset + 1) mod every < length."""

    kind = "burst"
    every: int
    length: int = 1
    offset: int = 0

    def __post_init__(self) -> None:
        if self.every < 1 or not 1 <= self.length <= self.every:
            raise Refused(f"every and length must satisfy 1 <= length <= every, got {self.length} and {self.every}")

    def strikes(self, step: int, key: tuple[int | str, ...]) -> bool:
        return (step - self.offset + 1) % self.every < self.length

    def count(self, start: int, stop: int) -> float:
        return float(self._before(stop) - self._before(start))

    def _before(self, step: int) -> int:
        """Struck steps before `step`, less a constant."""
        bursts, rest = divmod(step - self.offset + 1, self.every)
        return bursts * self.length + min(rest, self.length)


@dataclass(frozen=True, kw_only=True)
class Steps(Schedule):
    """The listed steps."""

    kind = "steps"
    steps: tuple[int, ...]

    def __post_init__(self) -> None:
        if any(step < 0 for step in self.steps):
            raise Refused(f"steps (steps count from 0) must not be negative, got {brief(list(self.steps))}")

    def strikes(self, step: int, key: tuple[int | str, ...]) -> bool:
        return self._before(step + 1) > self._before(step)

    def count(self, start: int, stop: int) -> float:
        return float(self._before(stop) - self._before(start))

    def _before(self, step: int) -> int:
        return bisect_left(self._listed, step)

    @cached_property
    def _listed(self) -> list[int]:
        return sorted(set(self.steps))


@dataclass(frozen=True, kw_only=True)
class Window(Schedule):
    """Steps from `start` up to, not including, `stop`."""

    kind = "window"
    start: int = 0
    stop: int

    def __post_init__(self) -> None:
        if not 0 <= self.start < self.stop:
            raise Refused(f"start and stop must satisfy 0 <= start < stop, got {self.start} and {self.stop}")

    def strikes(self, step: int, key: tuple[int | str, ...]) -> bool:
        return self.start <= step < self.stop

    def count(self, start: int, stop: int) -> float:
        return float(max(0, min(stop, self.stop) - max(start, self.start)))


EVERY_STEP = EveryStep()
_KINDS: dict[str, type[Schedule]] = {cls.kind: cls for cls in (EveryStep, Probability, Burst, Steps, Window)}


def parse_schedule(spec: Any, where: str) -> Schedule:
    """A schedule from YAML: a kind, or a mapping with a kind and its fields."""
    mapping = spec if isinstance(spec, Mapping) else {"kind": spec}
    kind = mapping.get("kind")
    if not isinstance(kind, str) or kind not in _KINDS:
        raise Refused(f"{where}: {brief(kind)} is not a schedule{did_you_mean(str(kind), _KINDS)}")
    return build(_KINDS[kind], {key: value for key, value in mapping.items() if key != "kind"}, where)


def schedule_spec(schedule: Schedule) -> Any:
    """The inverse of `parse_schedule`."""
    values = field_values(schedule)
    if not values:
        return schedule.kind
    return {"kind": schedule.kind, **{k: list(v) if isinstance(v, tuple) else v for k, v in values.items()}}
