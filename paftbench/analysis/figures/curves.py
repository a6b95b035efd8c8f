"""The judged metric over steps, a panel per fault: seeds as thin lines, their median thick."""

from matplotlib.figure import Figure

from paftbench.analysis.figures.grid import columns_of, panel_grid
from paftbench.analysis.figures.series_style import styles_of
from paftbench.analysis.figures.style import handles
from paftbench.analysis.figures.traces import draw_curves
from paftbench.analysis.panels import panels
from paftbench.analysis.runs import Sweep


def figure(sweep: Sweep) -> Figure:
    """Golden and the averaging limit beside each fault's mitigations; strikes and syncs as ticks below."""
    shown = panels(sweep)
    look = styles_of(shown)
    fig, heading = panel_grid(shown, look, lambda axes, panel: draw_curves(axes, panel, look))
    ncols = min(3 if columns_of(shown) == 1 else 6, len(look))
    heading.legend(handles=handles(look), loc="center", ncols=ncols, handlelength=2.8)
    return fig
