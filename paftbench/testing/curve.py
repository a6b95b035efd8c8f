"""Curves: what a training loop hands back, point by point, and how their ends compare."""

import math
from collections.abc import Iterable, Sequence
from typing import Any

from paftbench.errors import Refused


def curve_of(returned: Any) -> list[float]:
    """The numbers that a training loop returned or yields; `ValueError` where they are no curve."""
    hint = "return its curve, a list of losses or metric values, or yield them"
    if returned is None:
        raise Refused(f"train returned None; {hint}")
    if isinstance(returned, int | float) or getattr(returned, "ndim", None) == 0:
        return [_number(returned)]
    if isinstance(returned, str | bytes | dict) or not isinstance(returned, Iterable):
        raise Refused(f"train returned a {type(returned).__name__}; {hint}")
    points: list[float] = []
    for number, value in enumerate(returned):
        try:
            points.append(_number(value))
        except (TypeError, ValueError) as error:
            raise Refused(f"point {number} of train's curve is no number: {value!r}; {hint}") from error
    if not points:
        raise Refused(f"train's curve is empty; {hint}")
    return points


def mean_curve(curves: Sequence[Sequence[float]]) -> list[float]:
    """The mean over ranks, point by point."""
    return [math.fsum(points) / len(points) if _finite(points) else math.nan for points in zip(*curves, strict=True)]


def tail_mean(curve: Sequence[float], window: int) -> float:
    """The mean of the last `window` points; NaN where one of them is not finite."""
    tail = curve[-window:]
    return math.fsum(tail) / window if _finite(tail) else math.nan


def default_window(points: int) -> int:
    """The last fifth of a curve, at least one point."""
    return max(1, points // 5)


def first_not_finite(curve: Sequence[float]) -> int | None:
    """The number of the first point that is NaN or infinite."""
    return next((number for number, value in enumerate(curve) if not math.isfinite(value)), None)


def _number(value: Any) -> float:
    return float(value.detach() if hasattr(value, "detach") else value)


def _finite(points: Iterable[float]) -> bool:
    return all(math.isfinite(point) for point in points)
