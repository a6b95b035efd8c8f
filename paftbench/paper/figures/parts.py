"""What the paper's figures share: looks per method and degree, legend, titles, source, and the chosen periods."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import isclose
from textwrap import fill
from typing import Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from paftbench.analysis.figures.series_style import GREEN, GREY, ROLES, SeriesStyle, styled
from paftbench.analysis.figures.traces import Floats, trace
from paftbench.analysis.runs import Run, Sweep, samples_of
from paftbench.analysis.stats import NO_CLAIM, claim_of
from paftbench.paper.claim import degree_text
from paftbench.paper.figures.rows import Series
from paftbench.paper.items import Item
from paftbench.paper.judging import setting_of
from paftbench.paper.measured import chosen
from paftbench.paper.published import SOURCE

METHODS: Final[Mapping[str, SeriesStyle]] = {
    **ROLES,
    "paft_sync": styled("PAFT-Sync", "blue"),
    "paft_sync_H5": styled("PAFT-Sync, H = 5", "blue", 1),
    "paft_sync_H10": styled("PAFT-Sync, H = 10", "blue"),
    "paft_sync_H50": styled("PAFT-Sync, H = 50", "blue", 2),
    "paft": styled("PAFT", "orange"),
    "paft_all": replace(styled("PAFT, optimizer state too", "orange"), color=GREEN, marker="D"),
}


def look_of(method: str, degree: float | None, degrees: Sequence[float]) -> SeriesStyle:
    """A method's own look; of several degrees the lower are lighter and the higher darker."""
    look = METHODS[method]
    if degree is None or not degrees:
        return look
    # Degrees come from files, where 0.03 may be another float than the one written here.
    place = next(i for i, known in enumerate(degrees) if isclose(known, degree))
    tone = np.linspace(-0.62, 0.45, len(degrees))[place] if len(degrees) > 1 else 0.0
    return replace(look, label=f"{look.label}, std {degree_text(degree)}", color=_toned(look.color, float(tone)))


def _toned(color: str, tone: float) -> str:
    """Towards white below 0, towards black above."""
    end = 1.0 if tone < 0 else 0.0
    red, green, blue = ((1 - abs(tone)) * part + abs(tone) * end for part in to_rgb(color))
    return str(to_hex((red, green, blue)))


def handles_of(
    item: Item, found: Sequence[tuple[str, float | None, SeriesStyle]], marked: bool = False
) -> list[Line2D]:
    """Legend handles, each (method, degree) once, in the item's order and by rising degree."""
    ordered = sorted(found, key=lambda shown: (item.methods.index(shown[0]), shown[1] or 0.0))
    unique = {look.label: look for _, _, look in ordered}.values()
    if marked:
        return [
            Line2D([], [], label=look.label, color=look.color, marker=look.marker, linestyle="none", markersize=5)
            for look in unique
        ]
    return [Line2D([], [], label=look.label, linewidth=1.8, **look.of_line()) for look in unique]


def title_ours(sweep: Sweep, runs: Sequence[Run], scale: str, degree: str = "") -> str:
    """What ran, at which scale, of how many seeds, on two lines."""
    if not runs:
        return f"Ours, scale {scale}{degree}\nnot run"
    seeds = len(samples_of(runs))
    caveat = f" ({NO_CLAIM})" if claim_of(seeds) == "none" else ""
    setting = setting_of(replace(sweep, selected=tuple(runs)))
    return f"Ours, scale {scale}{degree}{caveat}\n{setting}"


def title_theirs(text: str) -> str:
    """What theirs is, on two lines."""
    return f"Paper, 1 seed\n{text}"


def sign(fig: Figure, item: Item, how: str) -> None:
    """Where theirs come from, below the panels."""
    text = f"{item.title}: {how}. {SOURCE}."
    if item.kind != "overhead":
        text += " Noise: what it prints as sigma squared is the std in its code, and here."
    letters = int(fig.get_size_inches()[0] / 0.053)  # at this font size
    fig.supxlabel(fill(text, letters), fontsize=6.5, color=GREY, x=0.01, ha="left")


def draw_seeds(
    axes: Axes, x: float, values: Sequence[float], look: SeriesStyle, *, dash: tuple[float, float], size: float
) -> None:
    """A dash (its size and width) for each of several seeds, and their mean as a marker."""
    if len(values) > 1:
        axes.vlines(x, min(values), max(values), color=look.color, linewidth=1.0, zorder=2)
        axes.scatter([x] * len(values), values, color=look.color, marker="_", s=dash[0], linewidths=dash[1])
    if values:
        mean = float(np.mean(values))
        axes.scatter(x, mean, color=look.color, marker=look.marker, s=size, linewidths=0, zorder=look.order)


def draw_periods(axes: Axes, shown: Sequence[tuple[SeriesStyle, Series]]) -> None:
    """The period that PAFT chose at each synchronisation: the mean over seeds thick, every seed thin.

    Series stand a little apart, so that those of one period can all be seen.
    """
    bounds: set[int] = set()
    steps = 1
    apart = np.linspace(-0.14, 0.14, len(shown)) if len(shown) > 1 else np.zeros(1)
    for (look, series), shift in zip(shown, apart, strict=False):
        steps = max(steps, *(run.trial.steps for run in series.runs))
        grid = np.arange(steps + 1, dtype=float)
        levels = [level for run in series.runs if (level := _level(run, grid)) is not None]
        for level in levels if len(levels) > 1 else ():
            axes.step(grid, level + shift, where="post", color=look.color, linewidth=0.5, alpha=0.4)
        if levels:
            axes.step(grid, np.mean(levels, axis=0) + shift, where="post", color=look.color, linewidth=1.5, zorder=4)
        for run in series.runs:
            for own in run.trial.mitigations:
                bounds |= {bound for bound in (own.period_min, own.period_max) if bound is not None}
    for bound in bounds:
        axes.axhline(bound, color=GREY, linewidth=0.7, linestyle=":", zorder=1)
    axes.set_xlim(0, steps)
    axes.set_ylim(0, 1.1 * max(axes.get_ylim()[1], max(bounds, default=1)))
    axes.yaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.set_xlabel("completed steps", labelpad=2)
    axes.set_ylabel("chosen period H")
    axes.set_title("PAFT's period, ours\n(dotted: its bounds)", loc="left", fontweight="bold")


def _level(run: Run, grid: Floats) -> Floats | None:
    """The period after each number of completed steps: the first one until a choice was made, NaN after the end."""
    steps, periods = chosen(run)
    if not steps:
        return None
    first = next((own.period for own in run.trial.mitigations if own.period is not None), periods[0])
    at = np.searchsorted(np.array(steps, dtype=float), grid, side="right")
    return np.where(grid <= trace(run).ended, np.array([float(first), *periods])[at], np.nan)
