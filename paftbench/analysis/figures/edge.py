"""Runs that have no place on a panel's axes stand at its edge, on the side of bad quality: none is dropped."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator

from paftbench.analysis.figures.scale import AxisScale
from paftbench.analysis.figures.series_style import SeriesStyle

OFF_SCALE = "off-scale"
# None of these is a mitigation's.
MARKS = {
    "nonfinite": r"$\infty$", "crashed": r"$\dagger$", "hung": r"$\odot$", "error": r"$!$",
    OFF_SCALE: r"$\updownarrow$",
}  # fmt: skip
_ROW = 0.065  # of the height of the axes


def draw_edge(
    axes: Axes,
    marks: Mapping[tuple[str, float], Sequence[str]],
    at: Mapping[float, float],
    room: float,
    look: Mapping[str, SeriesStyle],
    scale: AxisScale,
) -> set[str]:
    """A row per mitigation with broken runs, a mark per run; sets the y limits. Returns the kinds of marks drawn.

    `room` is what a degree has on the x axis.
    """
    names = list(dict.fromkeys(name for (name, _), kinds in marks.items() if kinds))
    share = _ROW * len(names) + (0.02 if names else 0.0)
    height = (scale.high - scale.low) * share / (1 - share)
    low, high = (scale.low - height, scale.high) if scale.worse == "bottom" else (scale.low, scale.high + height)
    axes.set_ylim(low, high)
    ticks = [tick for tick in axes.get_yticks() if scale.shows(tick)]
    axes.yaxis.set_major_locator(FixedLocator(ticks))
    if not names:
        return set()
    edge = (0.0, share) if scale.worse == "bottom" else (1 - share, 1.0)
    axes.axhspan(*_heights(edge, low, high), color="#f3f3f3", zorder=0.5, linewidth=0)
    for row, name in enumerate(names):
        share_of_row = 0.01 + _ROW * (row + 0.5)
        place = share_of_row if scale.worse == "bottom" else 1 - share_of_row
        for degree, x in at.items():
            kinds = marks.get((name, degree), ())
            beside = x + 0.1 * room * (np.arange(len(kinds)) - (len(kinds) - 1) / 2)
            for kind, x_mark in zip(kinds, beside, strict=True):
                axes.scatter(
                    x_mark, low + place * (high - low), marker=MARKS[kind], s=30, color=look[name].color,
                    linewidths=0, zorder=9,
                )  # fmt: skip
    return {kind for kinds in marks.values() for kind in kinds}


def _heights(shares: tuple[float, float], low: float, high: float) -> tuple[float, float]:
    return low + shares[0] * (high - low), low + shares[1] * (high - low)
