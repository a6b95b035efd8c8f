"""How far replicas drifted apart, a panel per fault, on a log axis; closed forms beside what they describe."""

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from paftbench.analysis.closed_form import closed_form
from paftbench.analysis.figures.grid import columns_of, panel_grid
from paftbench.analysis.figures.series_style import BLACK, styles_of
from paftbench.analysis.figures.style import handles
from paftbench.analysis.figures.traces import draw_divergence
from paftbench.analysis.panels import Panel, panels
from paftbench.analysis.runs import Sweep
from paftbench.records.roles import GOLDEN


def figure(sweep: Sweep) -> Figure:
    """The saw-tooth of synchronised runs and the random walk of plain DDP; zero stands at the bottom of the axis."""
    shown = panels(sweep)
    look = styles_of(shown)
    explained: list[bool] = []

    def draw(axes: Axes, panel: Panel) -> None:
        draw_divergence(axes, panel, look)
        explained.append(_draw_theory(axes, panel))

    fig, heading = panel_grid(shown, look, draw)
    named = handles({name: own for name, own in look.items() if name != GOLDEN})
    if any(explained):
        named.append(Line2D([], [], color=BLACK, linewidth=0.7, linestyle=":", label="closed form"))
    ncols = min(3 if columns_of(shown) == 1 else 6, max(1, len(named)))
    heading.legend(handles=named, loc="center", ncols=ncols, handlelength=2.8)
    return fig


def _draw_theory(axes: Axes, panel: Panel) -> bool:
    drawn = False
    for runs in panel.series.values():
        peaks = closed_form(runs[0])
        if peaks is not None:
            axes.plot(*peaks, color=BLACK, linewidth=0.7, linestyle=":", zorder=7)
            drawn = True
    return drawn
