"""A table of qualities as dots: degree by method, ours left and theirs right."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from paftbench.analysis.figures.series_style import SeriesStyle
from paftbench.analysis.figures.style import canvas, legend_on_top
from paftbench.analysis.quality import quality
from paftbench.analysis.runs import Sweep
from paftbench.paper.claim import degree_text
from paftbench.paper.figures.parts import draw_periods, draw_seeds, handles_of, look_of, sign, title_ours, title_theirs
from paftbench.paper.figures.rows import Series, degrees_of, rows_of, series_of
from paftbench.paper.items import Item
from paftbench.paper.published import entries

Points = dict[str, dict[float | None, list[float]]]


def figure(item: Item, sweep: Sweep, scale: str) -> Figure:
    """A row per number of workers: ours of every seed with their means, the printed ones, and the chosen periods."""
    rows = rows_of(item, sweep)
    fig = canvas(12.6, 3.0 * len(rows) + 0.2)
    panels = fig.subplots(len(rows), 3, squeeze=False, width_ratios=[1.0, 1.0, 0.62])
    looked = {method: look_of(method, None, ()) for method in item.methods}
    seen: list[tuple[str, float | None, SeriesStyle]] = []
    for axes, row, world_size in zip(panels, rows, item.world_sizes, strict=True):
        own = series_of(item, sweep, row)
        degrees = degrees_of(item, own)
        runs = [run for series in own for run in series.runs]
        axes[0].set_title(title_ours(sweep, runs, scale), loc="left", fontweight="bold")
        axes[1].set_title(title_theirs(row.theirs), loc="left", fontweight="bold")
        _dots(axes[0], looked, _ours(sweep, own), degrees)
        _dots(axes[1], looked, _theirs(item, world_size), degrees)
        axes[0].set_ylabel("test accuracy %, rank 0")
        axes[1].set_ylabel("test accuracy %")
        periods = [(look_of("paft", s.degree, degrees), s) for s in own if s.method == "paft"]
        draw_periods(axes[2], periods)
        seen += [(series.method, series.degree, look) for look, series in periods]
    sign(fig, item, "printed")
    whole = [(method, None, look) for method, look in looked.items()]
    legend_on_top(fig, [*handles_of(item, whole, marked=True), *handles_of(item, seen)])
    return fig


def _ours(sweep: Sweep, found: Sequence[Series]) -> Points:
    points: Points = {}
    for series in found:
        known = [value for run in series.runs if (value := quality(sweep, run, "rank0")) is not None]
        points.setdefault(series.method, {})[series.degree] = [100 * value for value in known]
    return points


def _theirs(item: Item, world_size: int) -> Points:
    points: Points = {}
    for entry in entries(item.table or 0):
        if entry.world_size == world_size:
            degree = None if entry.method == "golden" else entry.noise_std
            points.setdefault(entry.method, {})[degree] = [entry.value]
    return points


def _dots(axes: Axes, looked: dict[str, SeriesStyle], points: Points, degrees: Sequence[float]) -> None:
    """Golden as a line across, the others side by side at each degree: a dash per seed, their mean as a marker."""
    own = points.get("golden", {}).get(None, [])
    if own:
        axes.axhspan(min(own), max(own), color="#d9d9d9", zorder=1, linewidth=0)
        axes.axhline(float(np.mean(own)), linewidth=1.0, **looked["golden"].of_line())
    others = [method for method in looked if method != "golden"]
    for method, shift in zip(others, np.linspace(-0.3, 0.3, len(others)), strict=True):
        for place, degree in enumerate(degrees):
            values = points.get(method, {}).get(degree, [])
            draw_seeds(axes, place + shift, values, looked[method], dash=(22, 0.8), size=30)
    for place in range(1, len(degrees)):
        axes.axvline(place - 0.5, color="#dddddd", linewidth=0.7, zorder=0)
    axes.grid(False, axis="x")
    axes.set_xticks(range(len(degrees)), [degree_text(degree) for degree in degrees])
    axes.tick_params(axis="x", length=0)
    axes.set_xlim(-0.5, len(degrees) - 0.5)
    axes.set_xlabel("std of the noise", labelpad=2)
    axes.set_ylim(0, 100)
