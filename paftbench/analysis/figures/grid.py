"""Panels side by side, each with ticks for strikes and syncs below it."""

from collections.abc import Callable, Sequence
from math import ceil

from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure

from paftbench.analysis.figures.series_style import SeriesStyle
from paftbench.analysis.figures.style import canvas, title_of
from paftbench.analysis.figures.traces import draw_ticks, tick_height
from paftbench.analysis.panels import Panel

COLUMNS = 3


def columns_of(shown: Sequence[Panel]) -> int:
    """Panels in a row."""
    return min(COLUMNS, len(shown))


def panel_grid(
    shown: Sequence[Panel], look: dict[str, SeriesStyle], draw: Callable[[Axes, Panel], None]
) -> tuple[Figure, SubFigure]:
    """The figure with every panel drawn by `draw`, and the strip above the panels, for a legend."""
    columns = columns_of(shown)
    lines = ceil(len(shown) / columns)
    fig = canvas(max(5.2, 4.2 * columns), 0.5 + 2.7 * lines)
    heading, body = fig.subfigures(2, 1, squeeze=False, height_ratios=[0.3, 2.7 * lines]).flat
    parts = body.subfigures(lines, columns, squeeze=False)
    for part, panel in zip(parts.flat, shown, strict=False):
        part.suptitle(title_of(panel), x=0.02, ha="left", fontsize=8, fontweight="bold")
        grid = part.add_gridspec(2, 1, height_ratios=[7, tick_height(panel, look)])
        axes = part.add_subplot(grid[0])
        draw(axes, panel)
        axes.tick_params(labelbottom=False)
        draw_ticks(part.add_subplot(grid[1], sharex=axes), panel, look)
    return fig, heading
