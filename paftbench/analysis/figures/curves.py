"""The judged metric over steps, a panel per fault: seeds as thin lines, their median thick."""

from math import ceil

from matplotlib.figure import Figure

from paftbench.analysis.figures.style import canvas, handles, looks, title_of
from paftbench.analysis.figures.traces import draw_curves, draw_ticks, tick_height
from paftbench.analysis.panels import panels
from paftbench.analysis.runs import Sweep


def figure(sweep: Sweep) -> Figure:
    """Golden and the averaging limit beside each fault's mitigations; strikes and syncs as ticks below."""
    shown = panels(sweep)
    columns = min(3, len(shown))
    lines = ceil(len(shown) / columns)
    look = looks(shown)
    fig = canvas(max(5.2, 4.2 * columns), 0.5 + 2.7 * lines)
    heading, body = fig.subfigures(2, 1, squeeze=False, height_ratios=[0.3, 2.7 * lines]).flat
    heading.legend(
        handles=handles(look), loc="center", ncols=min(3 if columns == 1 else 6, len(look)), handlelength=2.8
    )
    parts = body.subfigures(lines, columns, squeeze=False)
    for part, panel in zip(parts.flat, shown, strict=False):
        part.suptitle(title_of(panel), x=0.02, ha="left", fontsize=8, fontweight="bold")
        grid = part.add_gridspec(2, 1, height_ratios=[7, tick_height(panel, look)])
        axes = part.add_subplot(grid[0])
        draw_curves(axes, panel, look)
        axes.tick_params(labelbottom=False)
        draw_ticks(part.add_subplot(grid[1], sharex=axes), panel, look)
    return fig
