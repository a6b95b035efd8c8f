"""Axes of the degree figure: where degrees stand, which qualities are shown, and short numbers for ticks."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import floor, isfinite, isnan, log10

import numpy as np

from paftbench.analysis.degrees import Ladder
from paftbench.analysis.quality import quality
from paftbench.analysis.runs import Run, View


@dataclass(frozen=True, kw_only=True)
class AxisScale:
    """The range of the judged metric that a panel shows; `worse` is the side on which runs fall off it."""

    judge: View
    low: float
    high: float
    worse: str

    @classmethod
    def of(cls, ladder: Ladder) -> "AxisScale":
        """All finite numbers, of a loss none far above the untrained model's; no narrower than four tolerances."""
        panel = ladder.panel
        runs = [run for group in panel.series.values() for run in group]
        values = _finite(quality(panel.sweep, run, panel.judge) for run in runs)
        smaller_is_better = panel.lead.found.metric.direction == "min"
        untrained = _finite(value for run in runs for value in (run.found.metric.untrained, run.found.metric.chance))
        if smaller_is_better and untrained:
            limit = max(untrained) * 1.05
            values = [value for value in values if value <= limit] or [limit]
        low, high = (min(values), max(values)) if values else (0.0, 1.0)
        missing = max(0.0, 4 * float(panel.lead.planned.tolerance) - (high - low)) / 2
        low, high = low - missing, high + missing
        pad = 0.06 * (high - low) or max(0.01, 0.01 * abs(high))
        return cls(judge=panel.judge, low=low - pad, high=high + pad, worse="top" if smaller_is_better else "bottom")

    def shows(self, value: float) -> bool:
        return self.low <= value <= self.high

    def known(self, runs: Sequence[Run]) -> list[float]:
        """The finite numbers of the runs that did not break down."""
        return _finite(run.metric(self.judge) for run in runs if not run.broke_down)


def places(degrees: Sequence[float]) -> dict[float, float]:
    """Where each degree stands: its logarithm; zero, which has none, a step before the smallest."""
    logs = {degree: log10(degree) for degree in degrees if degree > 0}
    steps = np.diff(sorted(logs.values()))
    gap = float(np.median(steps)) if len(steps) else 1.0
    first = min(logs.values(), default=0.0)
    return {degree: logs.get(degree, first - gap) for degree in degrees}


def brief(value: float, digits: int = 3) -> str:
    """A number for a tick: 0.03, 3e-5, 2e36, >1e99; "-" where it was not measured."""
    if isnan(value):
        return "-"
    if not isfinite(value):
        return "inf"
    if value == 0 or 1e-3 <= abs(value) < 1e4:
        return f"{float(f'{value:.{digits - 1}e}'):g}"
    power = floor(log10(abs(value)))
    mantissa = f"{value / 10**power:.{1 if abs(power) < 10 else 0}f}".removesuffix(".0")
    return f"{mantissa}e{power}" if mantissa != "10" else f"1e{power + 1}"


def _finite(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None and isfinite(value)]
