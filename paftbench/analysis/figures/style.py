"""One look for all figures: colours that colour-blind readers can tell apart, and a line style beside each."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from textwrap import fill
from typing import Any

from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from paftbench.analysis.panels import Panel, plain

# Okabe and Ito's palette (https://jfly.uni-koeln.de/color/), without its yellow, which is too light for lines.
VERMILLION, BLUE, GREEN, PURPLE = "#D55E00", "#0072B2", "#009E73", "#CC79A7"
ORANGE, SKY, BLACK, GREY = "#E69F00", "#56B4E9", "#000000", "#6b6b6b"
NAVY = "#0b2f4f"
INK = "#333333"

RC: Any = {
    "font.size": 8, "axes.titlesize": 8.5, "axes.labelsize": 8, "xtick.labelsize": 7.5, "ytick.labelsize": 7.5,
    "legend.fontsize": 8.5, "legend.frameon": False, "axes.spines.top": False, "axes.spines.right": False,
    "axes.linewidth": 0.7, "xtick.major.width": 0.7, "ytick.major.width": 0.7, "xtick.major.size": 2.5,
    "ytick.major.size": 2.5, "ytick.minor.size": 1.5, "axes.grid": True, "grid.color": "#e6e6e6",
    "grid.linewidth": 0.6, "axes.axisbelow": True, "svg.hashsalt": "paftbench", "pdf.fonttype": 42,
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Look:
    """How a mitigation is drawn and called."""

    label: str
    color: str
    line: Any = "-"
    marker: str = "o"
    order: float = 3.0

    def of_line(self) -> dict[str, Any]:
        return {"color": self.color, "linestyle": self.line, "zorder": self.order}


_KNOWN = {
    "golden": Look(label="golden (no faults)", color=BLACK, line=(0, (4, 2.5)), marker="_", order=7),
    "ddp": Look(label="plain DDP", color=VERMILLION, marker="X", order=3),
    "paft_sync": Look(label="PAFT-Sync", color=BLUE, marker="o", order=4),
    "paft_sync_H5": Look(label="PAFT-Sync, H = 5", color=SKY, marker="v", order=4),
    "paft_sync_H10": Look(label="PAFT-Sync, H = 10", color=BLUE, marker="o", order=4),
    "paft_sync_H50": Look(label="PAFT-Sync, H = 50", color=NAVY, marker="p", order=4),
    "paft_dyn": Look(label="PAFT-Dyn", color=ORANGE, line=(0, (7, 1.2)), marker="s", order=5),
    "paft": Look(label="PAFT", color=ORANGE, line=(0, (7, 1.2)), marker="s", order=5),
    "clip_paft_sync": Look(label="clip + PAFT-Sync", color=GREEN, line=(0, (6, 1, 1.5, 1)), marker="D", order=5),
    "averaging_limit": Look(label="averaging limit", color=PURPLE, line=(0, (1.2, 1.2)), marker="^", order=6),
}
_SPARE = ((GREY, "P"), ("#8c510a", "<"), ("#5e3c99", ">"), (SKY, "v"), (GREEN, "D"), (ORANGE, "s"))


def looks(panels: Sequence[Panel]) -> dict[str, Look]:
    """A look per mitigation label, golden first and the averaging limit last.

    The known ones keep theirs in every figure, others get what is left.
    """
    names = list(dict.fromkeys(name for panel in panels for name in panel.series))
    *first, last = _KNOWN
    turns = {**{name: i for i, name in enumerate(first)}, last: len(first) + 1}
    names.sort(key=lambda name: turns.get(name, len(first)))
    spare = {name: _SPARE[i % len(_SPARE)] for i, name in enumerate(name for name in names if name not in _KNOWN)}
    return {
        name: _KNOWN[name] if name in _KNOWN else Look(label=_spoken(name), color=spare[name][0], marker=spare[name][1])
        for name in names
    }


def _spoken(name: str) -> str:
    words = {"paft_sync": "PAFT-Sync", "paft_dyn": "PAFT-Dyn", "ddp": "DDP"}
    for word, spoken in words.items():
        name = name.replace(word, spoken)
    return plain(name).replace("_", " ")


def handles(look: dict[str, Look]) -> list[Line2D]:
    """Legend handles in the order of the looks."""
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
