"""A run's curves against the golden run's, rank by rank: numbers and a table that says why it failed."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral, Real

from paftbench.errors import Refused
from paftbench.testing.curve import default_window, first_not_finite, mean_curve, tail_mean

Curves = Sequence[Sequence[float]]
POINTS = 8  # of the curves' ends that the table shows
UNLIKE = "the run does not converge like the golden run"


@dataclass(frozen=True, kw_only=True)
class Line:
    """One pair of tail means; `worse` is positive where the run ended worse than the golden run."""

    who: str
    golden: float
    run: float
    worse: float


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The mean over ranks and the rank that lost most, over the last `window` points."""

    golden: Curves
    run: Curves
    mean: Line
    worst: Line
    worst_rank: int
    golden_gain: float
    margin: float
    window: int
    higher_is_better: bool

    @property
    def within(self) -> bool:
        """Whether both are within the margin; a run that is not finite is not."""
        return self.mean.worse <= self.margin and self.worst.worse <= self.margin

    @property
    def golden_is_flat(self) -> bool:
        """Whether the golden run improved by no more than the margin; of a single point nobody knows."""
        return len(self.golden[0]) > self.window and not self.golden_gain > self.margin

    def headline(self) -> str:
        """What went wrong, in one line."""
        for rank, curve in enumerate(self.run):
            point = first_not_finite(curve)
            if point is not None and first_not_finite(curve[-self.window :]) is not None:
                return f"{UNLIKE}: rank {rank}'s curve is {curve[point]} at point {point}"
        line = self.mean if self.mean.worse > self.margin else self.worst
        return f"{UNLIKE}: {line.who} is {line.worse:.4g} worse, margin {self.margin:g}"

    def table(self) -> str:
        """Both lines, and the last points beside each other."""
        direction = "higher" if self.higher_is_better else "lower"
        points = len(self.golden[0])
        lines = [
            f"  mean of the last {self.window} of {points} points, {direction} is better; margin {self.margin:g}",
            f"    {'':<16}{'golden':>12}{'this run':>12}{'worse by':>12}",
        ]
        for line in (self.mean, self.worst):
            verdict = "ok" if line.worse <= self.margin else "FAIL"
            numbers = f"{line.golden:>12.5g}{line.run:>12.5g}{line.worse:>+12.4g}"
            lines.append(f"    {line.who:<16}{numbers}  {verdict}")
        lines.append(f"  the last points{'':<3}{'golden':>12}{'this run':>12}{f'rank {self.worst_rank}':>12}")
        golden, run = mean_curve(self.golden), mean_curve(self.run)
        for point in range(max(0, points - POINTS), points):
            row = f"{golden[point]:>12.5g}{run[point]:>12.5g}{self.run[self.worst_rank][point]:>12.5g}"
            lines.append(f"    {point:<16}{row}")
        return "\n".join(lines)


def compared(golden: Curves, run: Curves, *, margin: float, window: int | None, higher_is_better: bool) -> Comparison:
    """The comparison; `ValueError` for a margin or window that means nothing, `AssertionError` for curves that cannot
    be compared."""
    if isinstance(margin, bool) or not isinstance(margin, Real) or not 0.0 <= margin < math.inf:
        raise Refused(f"margin (how much worse the run may be, in the curve's units) must be >= 0, got {margin!r}")
    points = len(golden[0])
    window = default_window(points) if window is None else window
    if isinstance(window, bool) or not isinstance(window, Integral) or not 1 <= window <= points:
        raise Refused(f"window (points at the end to judge) must be from 1 to the curve's {points}, got {window!r}")
    _check_comparable(golden, run)

    def line(who: str, golden_curve: Sequence[float], run_curve: Sequence[float]) -> Line:
        left, right = tail_mean(golden_curve, window), tail_mean(run_curve, window)
        worse = left - right if higher_is_better else right - left
        return Line(who=who, golden=left, run=right, worse=worse if math.isfinite(worse) else math.inf)

    # The same rank of both runs saw the same data, so their difference holds less chance than that of any two.
    pairs = [line(f"rank {rank} (worst)", *pair) for rank, pair in enumerate(zip(golden, run, strict=True))]
    worst = max(range(len(pairs)), key=lambda rank: pairs[rank].worse)
    mean_golden = mean_curve(golden)
    gain = mean_golden[0] - tail_mean(mean_golden, window)
    return Comparison(
        golden=golden,
        run=run,
        mean=line("mean of ranks", mean_golden, mean_curve(run)),
        worst=pairs[worst],
        worst_rank=worst,
        golden_gain=-gain if higher_is_better else gain,
        margin=margin,
        window=window,
        higher_is_better=higher_is_better,
    )


def _check_comparable(golden: Curves, run: Curves) -> None:
    """`AssertionError` for curves of two lengths, and for a golden run that is not finite."""
    points = len(golden[0])
    if len(run[0]) != points:
        raise AssertionError(
            f"the golden run's curve has {points} points and this run's {len(run[0])}; they must match"
        )
    for rank, curve in enumerate(golden):
        point = first_not_finite(curve)
        if point is not None:
            raise AssertionError(
                f"the golden run is no standard: rank {rank}'s curve is {curve[point]} at point {point}"
            )
