"""What is not normal about a step, judged by robust statistics of the steps that were accepted before."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, isfinite, log
from statistics import mean, median, stdev
from typing import Any, Final, Literal, Protocol

from paftbench.errors import Refused

Kind = Literal["nonfinite", "exploding", "vanishing", "loss spike", "rank outlier", "inconsistent"]
_LARGEST: Final = 700.0  # whose exponential is still a number
_TO_STD: Final = 1.4826  # median absolute deviation of normal numbers to their standard deviation (Hampel 1974)


@dataclass(frozen=True, kw_only=True)
class Vitals:
    """A step as all ranks see it, the same on each: every rank's loss, and its norm of the averaged gradient."""

    losses: tuple[float, ...]
    norms: tuple[float, ...]

    @property
    def loss(self) -> float:
        return sum(self.losses) / len(self.losses)

    @property
    def norm(self) -> float:
        return max(self.norms)

    @property
    def finite(self) -> bool:
        return all(map(isfinite, (*self.losses, *self.norms)))


@dataclass(frozen=True, kw_only=True)
class Anomaly:
    """What was found: a `value` beyond a `limit`, of one rank where it is one's."""

    kind: Kind
    value: float
    limit: float
    rank: int | None = None

    def __str__(self) -> str:
        where = "" if self.rank is None else f" on rank {self.rank}"
        return f"{self.kind}{where}: {self.value:.4g}, limit {self.limit:.4g}"


class Rule(Protocol):
    """Judges steps in their order; only those that it is told to `accept` may change what it goes by."""

    def judge(self, vitals: Vitals) -> Anomaly | None: ...
    def accept(self, vitals: Vitals) -> None: ...
    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, state: dict[str, Any]) -> None: ...


def nonfinite(vitals: Vitals) -> Anomaly | None:
    """First of all: no statistic may ever see such a number."""
    for rank, values in enumerate(zip(vitals.losses, vitals.norms, strict=True)):
        for value in values:
            if not isfinite(value):
                return Anomaly(kind="nonfinite", value=value, limit=float("inf"), rank=rank)
    return None


class Windows:
    """Losses and norms of the last accepted steps."""

    def __init__(self, window: int) -> None:
        self.losses: deque[float] = deque(maxlen=window)
        self.norms: deque[float] = deque(maxlen=window)

    def accept(self, vitals: Vitals) -> None:
        if vitals.finite and vitals.norm > 0:
            self.losses.append(vitals.loss)
            self.norms.append(vitals.norm)

    def state_dict(self) -> dict[str, Any]:
        return {"losses": list(self.losses), "norms": list(self.norms)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for own, saved in ((self.losses, state["losses"]), (self.norms, state["norms"])):
            own.clear()
            own.extend(saved)


class Robust(Windows):
    """Median and median absolute deviation over the last `window` accepted steps, of losses and of log norms.

    Nothing but what is not finite is an anomaly in the first `warmup` steps. `width` is in standard deviations, of
    which at least `least` is assumed: relative, so that a calm stretch makes nothing of noise. A norm below `vanished`
    times the median vanishes. One rank's loss more than `width` such deviations from the other ranks' is an outlier.
    """

    def __init__(
        self, *, window: int = 128, warmup: int = 16, width: float = 8.0, least: float = 0.05, vanished: float = 1e-3
    ) -> None:
        if not 2 <= warmup <= window:
            raise Refused(
                f"monitor: warmup (steps before it judges) must be within 2 and window {window}, got {warmup}"
            )
        for name, value in (("width", width), ("least", least), ("vanished", vanished)):
            if not value > 0:
                raise Refused(f"monitor: {name} must be > 0, got {value}")
        self.warmup, self.width, self.least, self.vanished = warmup, width, least, vanished
        super().__init__(window)

    def judge(self, vitals: Vitals) -> Anomaly | None:
        if (found := nonfinite(vitals)) is not None or len(self.norms) < self.warmup:
            return found
        usual, spread = self._of([log(norm) for norm in self.norms], 1.0)
        limit = exp(min(usual + self.width * spread, _LARGEST))
        if vitals.norm > limit:
            return Anomaly(kind="exploding", value=vitals.norm, limit=limit)
        least = exp(usual) * self.vanished
        if min(vitals.norms) < least:
            return Anomaly(kind="vanishing", value=min(vitals.norms), limit=least)
        usual, spread = self._of(self.losses, abs(median(self.losses)))
        limit = usual + self.width * spread
        if vitals.loss > limit:
            return Anomaly(kind="loss spike", value=vitals.loss, limit=limit)
        return self._outlier(vitals, spread)

    def _of(self, values: Sequence[float], scale: float) -> tuple[float, float]:
        middle = median(values)
        spread = _TO_STD * median(abs(value - middle) for value in values)
        return middle, max(spread, self.least * scale)

    def _outlier(self, vitals: Vitals, spread: float) -> Anomaly | None:
        """Losses of ranks differ by chance, with the spread that the mean has times the root of their number."""
        if len(vitals.losses) < 3:
            return None
        middle = median(vitals.losses)
        limit = self.width * spread * len(vitals.losses) ** 0.5
        rank = max(range(len(vitals.losses)), key=lambda number: abs(vitals.losses[number] - middle))
        off = abs(vitals.losses[rank] - middle)
        return Anomaly(kind="rank outlier", value=off, limit=limit, rank=rank) if off > limit else None


class ZClip:
    """Mean and standard deviation of the norm as exponential averages; a norm `width` above the mean explodes.

    Kumar et al. 2025, ZClip (arXiv 2504.02507), decay .97 and width 2.5 there, without its clipping. What is not finite
    is kept out of the averages, which the published rule does not do.
    """

    def __init__(self, *, decay: float = 0.97, width: float = 2.5, warmup: int = 25) -> None:
        self.decay, self.width, self.warmup = decay, width, warmup
        self._count, self._mean, self._square = 0, 0.0, 0.0

    def judge(self, vitals: Vitals) -> Anomaly | None:
        if (found := nonfinite(vitals)) is not None or self._count < self.warmup:
            return found
        limit = self._mean + self.width * self._std()
        return Anomaly(kind="exploding", value=vitals.norm, limit=limit) if vitals.norm > limit else None

    def accept(self, vitals: Vitals) -> None:
        if not vitals.finite:
            return
        self._count += 1
        keep = self.decay if self._count > self.warmup else 1 - 1 / self._count
        self._mean = keep * self._mean + (1 - keep) * vitals.norm
        self._square = keep * self._square + (1 - keep) * vitals.norm**2

    def state_dict(self) -> dict[str, Any]:
        return {"count": self._count, "mean": self._mean, "square": self._square}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._count, self._mean, self._square = state["count"], state["mean"], state["square"]

    def _std(self) -> float:
        return max(self._square - self._mean**2, 0.0) ** 0.5


class SkipStep(Windows):
    """Mean and standard deviation over the last `window` accepted steps; loss or norm `width` above it is an anomaly.

    OLMo-core's SkipStepOptimizer (allenai/OLMo-core): window 128, width 6. What is not finite is kept out.
    """

    def __init__(self, *, window: int = 128, width: float = 6.0) -> None:
        super().__init__(window)
        self.width, self.warmup = width, max(2, window // 2)

    def judge(self, vitals: Vitals) -> Anomaly | None:
        if (found := nonfinite(vitals)) is not None or len(self.losses) < self.warmup:
            return found
        pairs: tuple[tuple[Kind, float, deque[float]], ...] = (
            ("loss spike", vitals.loss, self.losses), ("exploding", vitals.norm, self.norms),
        )  # fmt: skip
        for kind, value, values in pairs:
            limit = mean(values) + self.width * stdev(values)
            if value > limit:
                return Anomaly(kind=kind, value=value, limit=limit)
        return None
