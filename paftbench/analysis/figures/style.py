"""One look for all figures: sizes, legends, titles and the empty canvas."""

from collections.abc import Mapping, Sequence
from math import ceil
from textwrap import fill
from typing import Any

from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from paftbench.analysis.figures.series_style import SeriesStyle
from paftbench.analysis.panels import Panel

RC: Any = {
    "font.size": 8, "axes.titlesize": 8.5, "axes.labelsize": 8, "xtick.labelsize": 7.5, "ytick.labelsize": 7.5,
    "legend.fontsize": 8.5, "legend.frameon": False, "axes.spines.top": False, "axes.spines.right": False,
    "axes.linewidth": 0.7, "xtick.major.width": 0.7, "ytick.major.width": 0.7, "xtick.major.size": 2.5,
    "ytick.major.size": 2.5, "ytick.minor.size": 1.5, "axes.grid": True, "grid.color": "#e6e6e6",
    "grid.linewidth": 0.6, "axes.axisbelow": True, "svg.hashsalt": "paftbench", "pdf.fonttype": 42,
}  # fmt: skip


def handles(look: Mapping[str, SeriesStyle]) -> list[Line2D]:
    """Legend handles in the order of the styles."""
    return [Line2D([], [], label=own.label, linewidth=1.8, **own.of_line()) for own in look.values()]


def legend_on_top(fig: Figure, handles: Sequence[Any]) -> None:
    """A legend above all panels, in as many columns as fit; the figure grows by its height."""
    width, height = fig.get_size_inches()
    # Inches of a label's letter at the legend's font size, and of what stands beside it.
    widths = [0.06 * len(handle.get_label()) + 0.6 for handle in handles]
    columns = len(widths)
    while columns > 1 and sum(max(column) for column in _dealt(widths, columns)) > width:
        columns -= 1
    lines = ceil(len(widths) / columns)
    fig.set_size_inches(width, height + 0.12 + 0.19 * lines)
    fig.legend(handles=handles, loc="outside upper center", ncols=columns, handlelength=2.6, columnspacing=1.4)


def _dealt(widths: Sequence[float], columns: int) -> list[Sequence[float]]:
    """Entries by column, filled as a legend fills them: the first columns have one more."""
    lines, longer = divmod(len(widths), columns)
    sizes = [lines + 1] * longer + [lines] * (columns - longer)
    starts = [sum(sizes[:i]) for i in range(columns)]
    return [widths[start : start + size] for start, size in zip(starts, sizes, strict=True)]


def title_of(panel: Panel) -> str:
    """Lines that fit a column: the workload, and its faults."""
    return f"{panel.workload}{panel.caveat}\n{fill(panel.fault, 56)}"


def canvas(width: float, height: float) -> Figure:
    """An empty figure, in inches."""
    made = Figure(figsize=(width, height), layout="constrained")
    made.set_layout_engine("constrained", h_pad=0.03, w_pad=0.04, hspace=0.01, wspace=0.02)
    return made
