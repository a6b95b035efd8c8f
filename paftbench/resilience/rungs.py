"""What is done about anomalies: the mildest first, each a bounded number of times, all forgotten after calm steps."""

from dataclasses import dataclass
from typing import Any, Literal

from paftbench.errors import Refused
from paftbench.resilience.anomaly import Anomaly

Action = Literal["update", "skip", "cool", "roll back", "give up"]


@dataclass(frozen=True, kw_only=True)
class Recovery:
    """How often each rung is tried before the next: leave an update out, `skips` times; clip the gradient to its usual
    norm and lower the learning rate by `factor`, `cuts` times; load the last stable checkpoint and go on with later
    data, `rollbacks` times; then give up.

    Rungs start again from the first after `calm` healthy steps, and the learning rate is raised by one factor. A
    gradient that is not finite cannot be clipped: where the rate is lowered for one, its update is left out.
    """

    skips: int = 2
    cuts: int = 2
    rollbacks: int = 2
    factor: float = 0.5
    calm: int = 50

    def __post_init__(self) -> None:
        for name in ("skips", "cuts", "rollbacks"):
            if getattr(self, name) < 0:
                raise Refused(f"recovery.{name} (times that rung is tried) must be >= 0, got {getattr(self, name)}")
        if not 0 < self.factor < 1:
            raise Refused(f"recovery.factor (of the learning rate) must be within (0, 1), got {self.factor}")
        if self.calm < 1:
            raise Refused(f"recovery.calm (healthy steps that end an incident) must be >= 1, got {self.calm}")


class Rungs:
    """Where a run stands on its rungs, and the multiplier of its learning rate, which no load or scheduler touches."""

    def __init__(self, recovery: Recovery) -> None:
        self.recovery = recovery
        self.multiplier = 1.0
        self._anomalies = 0
        self._healthy = 0

    def climb(self, anomaly: Anomaly | None) -> Action:
        """What to do about a step."""
        if anomaly is None:
            self._rest()
            return "update"
        self._healthy = 0
        self._anomalies += 1
        rungs: tuple[tuple[Action, int], ...] = (
            ("skip", self.recovery.skips), ("cool", self.recovery.cuts), ("roll back", self.recovery.rollbacks),
        )  # fmt: skip
        left = self._anomalies
        for action, times in rungs:
            if left <= times:
                if action == "cool":
                    self.multiplier *= self.recovery.factor
                return action
            left -= times
        return "give up"

    def state_dict(self) -> dict[str, Any]:
        return {"multiplier": self.multiplier, "anomalies": self._anomalies, "healthy": self._healthy}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.multiplier, self._anomalies, self._healthy = state["multiplier"], state["anomalies"], state["healthy"]

    def _rest(self) -> None:
        self._healthy += 1
        if self._healthy % self.recovery.calm == 0:
            self._anomalies = 0
            self.multiplier = min(1.0, self.multiplier / self.recovery.factor)
