"""The one picture of a sweep: how training went, how far replicas drifted, when they were struck and when averaged."""

from math import ceil, isfinite, isnan

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from paftbench.analysis.cells import gap_over
from paftbench.analysis.figures.series_style import SeriesStyle, styles_of
from paftbench.analysis.figures.style import canvas, handles
from paftbench.analysis.figures.traces import draw_curves, draw_divergence, draw_ticks, tick_height
from paftbench.analysis.panels import Panel, hardest, panels
from paftbench.analysis.quality import broken
from paftbench.analysis.runs import Sweep
from paftbench.records.roles import DDP, GOLDEN

LIMITS = (
    "What averaging cannot repair: a large error on one rank is spread to every rank,"
    " and noise that all ranks have in common stays."
)


def figure(sweep: Sweep) -> Figure:
    """A row per workload and grid at its largest degree: curves, divergence, end of the run; ticks below."""
    shown = hardest(panels(sweep))
    look = styles_of(shown)
    fig = canvas(9.6, 0.75 + 2.15 * len(shown))
    heights = [0.14 * ceil(len(look) / 5), *[1.0] * len(shown)]
    heading, *rows = fig.subfigures(len(shown) + 1, 1, squeeze=False, height_ratios=heights).flat
    heading.legend(handles=handles(look), loc="center", ncols=min(5, len(look)), handlelength=2.8, columnspacing=1.6)
    for part, panel in zip(rows, shown, strict=True):
        part.suptitle(panel.title, x=0.012, ha="left", fontsize=9, fontweight="bold")
        grid = part.add_gridspec(2, 3, height_ratios=[7, tick_height(panel, look)], width_ratios=[5, 5, 2.1])
        curves, spread = part.add_subplot(grid[0, 0]), part.add_subplot(grid[0, 1])
        draw_curves(curves, panel, look)
        draw_divergence(spread, panel, look)
        for column, axes in enumerate((curves, spread)):
            axes.tick_params(labelbottom=False)
            ticks = part.add_subplot(grid[1, column], sharex=axes)
            draw_ticks(ticks, panel, look)
        draw_ends(part.add_subplot(grid[:, 2]), panel, look)
    fig.supxlabel(LIMITS, fontsize=9, fontstyle="italic")
    return fig


def draw_ends(axes: Axes, panel: Panel, look: dict[str, SeriesStyle]) -> None:
    """The judged metric at the end, every seed a point, golden's range as a band; below, the gap closed.

    A run that broke down is no point; the gap counts it, and says of how many.
    """
    known = _ends(panel, GOLDEN)
    if known:
        axes.axhspan(min(known), max(known), color="#d9d9d9", zorder=1, linewidth=0)
        axes.axhline(float(np.mean(known)), linewidth=1.0, **look[GOLDEN].of_line())
    names = [name for name in panel.series if name != GOLDEN]
    for i, name in enumerate(names):
        points = _ends(panel, name)
        jitter = np.linspace(-0.16, 0.16, len(points)) if len(points) > 1 else np.zeros(len(points))
        axes.scatter(i + jitter, points, color=look[name].color, marker=look[name].marker, s=20, zorder=4, linewidths=0)
    axes.set_xlim(-0.6, max(len(names) - 0.4, 0.6))
    axes.set_xticks(range(len(names)), [_closed(panel, name) for name in names], fontsize=7)
    for label, name in zip(axes.get_xticklabels(), names, strict=True):
        label.set_color(look[name].color)
    axes.tick_params(axis="x", length=0)
    axes.grid(False, axis="x")
    axes.set_xlabel("gap closed at the end", labelpad=2)


def _ends(panel: Panel, name: str) -> list[float]:
    runs = (run for run in panel.series.get(name, ()) if not run.broke_down)
    return [value for run in runs if (value := run.metric(panel.judge)) is not None and isfinite(value)]


def _closed(panel: Panel, name: str) -> str:
    runs = panel.series[name]
    gap, _ = gap_over(panel.sweep, runs, panel.judge)
    count = broken(runs)
    return _gap_text(gap, name) + (f"\n{count}\nbroke" if count else "")


def _gap_text(gap: float | str | None, name: str) -> str:
    if not isinstance(gap, float):
        return gap or ("no gap" if name == DDP else "-")
    if isnan(gap):
        return "undefined"
    return f"{gap:.0%}".replace("%", " %") if gap > -1 else "worse"
