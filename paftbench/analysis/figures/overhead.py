"""What mitigations cost: step time over plain DDP's, the parts of a step, and the bytes that they add."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from paftbench.analysis.cells import Cell, cells, overhead
from paftbench.analysis.cost import exposed, extra_share, overlaps, period, step_cost, sync_share
from paftbench.analysis.figures.scale import brief
from paftbench.analysis.figures.series_style import GREY, INK, SeriesStyle, styles_of
from paftbench.analysis.figures.style import canvas, legend_on_top
from paftbench.analysis.panels import NothingToDraw, Panel
from paftbench.analysis.runs import Run, Sweep
from paftbench.records.roles import DDP

# Under DDP the backward waits for the mean: what is computed and what is aggregated cannot be told apart.
PARTS = {
    "data": ("data",), "forward, backward, all-reduce": ("compute", "aggregate"), "mitigation": ("mitigate",),
    "optimizer": ("optimizer",),
}  # fmt: skip
SHADES = {
    "data": "#e0e0e0",
    "forward, backward, all-reduce": "#a6bddb",
    "optimizer": "#b2abd2",
    "mitigation": "#d7301f",
}
WIDTH = 0.8  # of the group of bars of one mitigation


@dataclass(frozen=True, kw_only=True)
class Bar:
    """The runs of one mitigation and world size, every seed timed against plain DDP of its own."""

    name: str
    world_size: int
    runs: tuple[Run, ...]
    ratios: tuple[float, ...]

    @property
    def plain(self) -> bool:
        return not self.runs[0].trial.mitigations


@dataclass(frozen=True, kw_only=True)
class BarRow:
    """What is compared with each other: one workload under one kind of fault."""

    title: str
    bars: tuple[Bar, ...]

    @property
    def names(self) -> list[str]:
        return list(dict.fromkeys(bar.name for bar in self.bars))

    @property
    def sizes(self) -> list[int]:
        return sorted({bar.world_size for bar in self.bars})

    def bound(self, bar: Bar) -> float | None:
        """What synchronising may cost by its measured time: a share of a step, None where that was not measured.

        The median over runs, each with its own steps per synchronisation: chosen periods differ by run.
        """
        plain = [
            cost.seconds
            for other in self._of_size(bar)
            if other.plain
            for run in other.runs
            if (cost := step_cost(run))
        ]
        every = [steps for run in bar.runs if (steps := period(run)) is not None]
        if not plain or not every:
            return None
        blocking = (
            bar.runs if not overlaps(bar.runs[0]) else [run for other in self._of_size(bar) for run in other.runs]
        )
        rho = sync_share(blocking, median(plain))
        return None if rho is None else median(exposed(rho, steps, overlaps(bar.runs[0])) for steps in every)

    def _of_size(self, bar: Bar) -> list[Bar]:
        return [other for other in self.bars if other.world_size == bar.world_size]


def figure(sweep: Sweep) -> Figure:
    """A row per workload: overhead with every seed and its bound, milliseconds of a step by part, extra bytes.

    `NothingToDraw` unless some mitigation was timed under torchrun beside plain DDP.
    """
    rows = rows_of(sweep)
    if not rows:
        raise NothingToDraw(
            "no mitigation was timed beside plain DDP: that takes placement torchrun, a process per rank, exact: false"
        )
    look = styles_of([Panel(sweep=sweep, grid="", series={bar.name: bar.runs for row in rows for bar in row.bars})])
    fig = canvas(11.0, 3.0 * len(rows))
    parts = fig.subfigures(len(rows), 1, squeeze=False)[:, 0]
    for part, row in zip(parts, rows, strict=True):
        part.suptitle(row.title, x=0.008, ha="left", fontsize=8.5, fontweight="bold")
        over, split, added = part.subplots(1, 3, width_ratios=[1.2, 1.4, 1.0])
        _draw_overhead(over, row, look)
        _draw_sections(split, row, look)
        _draw_bytes(added, row, look)
    legend_on_top(fig, _handles(rows))
    return fig


def rows_of(sweep: Sweep) -> list[BarRow]:
    """What was timed, plain DDP first in each row."""
    groups: dict[str, list[Bar]] = {}
    for cell in cells(sweep):
        timed = [(run, ratio) for run in cell.done if (ratio := overhead(sweep, run)) is not None]
        if timed:
            runs, ratios = zip(*timed, strict=True)
            panel = Panel(sweep=sweep, grid=cell.grid, series={"": runs})
            title = f"{panel.workload}: {panel.kind}{panel.caveat}"
            bar = Bar(name=_name(cell), world_size=runs[0].trial.world_size, runs=runs, ratios=ratios)
            groups.setdefault(title, []).append(bar)
    rows = [BarRow(title=title, bars=_pooled(bars)) for title, bars in groups.items()]
    return [row for row in rows if any(not bar.plain for bar in row.bars)]


def _name(cell: Cell) -> str:
    """The mitigation, and what else tells cells of one world size apart but the degree of a fault."""
    run = cell.runs[0]
    given = {
        key: value for key, value in cell.labels.items() if key not in ("mitigation", "grid", "world_size", "procs")
    }
    others = [f"{key.rpartition('.')[2]}={value}" for key, value in given.items() if not key.endswith(".degree")]
    apart = [word for word in cell.apart.split() if word != run.workload and not word.startswith("world_size=")]
    return " ".join([DDP if run.golden else run.mitigation, *others, *apart])


def _pooled(bars: Sequence[Bar]) -> tuple[Bar, ...]:
    """Bars of equal name and world size as one: degrees of a fault do not change what a step costs."""
    groups: dict[tuple[str, int], list[Bar]] = {}
    for bar in bars:
        groups.setdefault((bar.name, bar.world_size), []).append(bar)
    return tuple(
        Bar(
            name=name, world_size=size, runs=tuple(run for bar in group for run in bar.runs),
            ratios=tuple(ratio for bar in group for ratio in bar.ratios),
        )
        for (name, size), group in groups.items()
    )  # fmt: skip


def _draw_overhead(axes: Axes, row: BarRow, look: Mapping[str, SeriesStyle]) -> None:
    shown = [bar for bar in row.bars if not bar.plain]
    for bar, x, width in _placed(axes, shown, row.sizes, look):
        points = [100 * (ratio - 1) for ratio in bar.ratios]
        own = look[bar.name]
        axes.bar(x, fmean(points), 0.9 * width, color=own.color, alpha=0.45, linewidth=0)
        apart = np.linspace(-0.25, 0.25, len(points)) * width if len(points) > 1 else np.zeros(1)
        axes.scatter(x + apart, points, color=own.color, marker=own.marker, s=12, linewidths=0, zorder=4)
        bound = row.bound(bar)
        if bound is not None:
            axes.plot([x - 0.45 * width, x + 0.45 * width], [100 * bound] * 2, color=INK, linewidth=1.5, zorder=5)
    axes.axhline(0, color=INK, linewidth=0.7)
    axes.set_ylabel("step time over plain DDP's, %")


def _draw_sections(axes: Axes, row: BarRow, look: Mapping[str, SeriesStyle]) -> None:
    for bar, x, width in _placed(axes, row.bars, row.sizes, look):
        costs = [cost for run in bar.runs if (cost := step_cost(run)) is not None]
        bottom = 0.0
        for part, sections in PARTS.items():
            values = [sum(cost.sections.get(name, 0.0) for name in sections) for cost in costs]
            height = 1e3 * fmean(values) if values else 0.0
            axes.bar(x, height, 0.9 * width, bottom=bottom, color=SHADES[part], linewidth=0)
            bottom += height
    axes.set_ylabel("ms per step")


def _draw_bytes(axes: Axes, row: BarRow, look: Mapping[str, SeriesStyle]) -> None:
    shown = [bar for bar in row.bars if not bar.plain]
    for bar, x, width in _placed(axes, shown, row.sizes, look):
        known = [share for run in bar.runs if (share := extra_share(run)) is not None]
        height = 100 * fmean(known) if known else 0.0
        axes.bar(x, height, 0.9 * width, color=look[bar.name].color, alpha=0.45, linewidth=0)
        axes.annotate(
            brief(height, digits=2) if known else "-",
            (x, height),
            (0, 2),
            textcoords="offset points",
            ha="center",
            fontsize=7,
        )
    axes.margins(y=0.12)
    axes.set_ylabel("extra bytes, % of the gradients'")


def _placed(
    axes: Axes, bars: Sequence[Bar], sizes: Sequence[int], look: Mapping[str, SeriesStyle]
) -> list[tuple[Bar, float, float]]:
    """Bars with their place and width: a group per mitigation, in it one per world size; sets the x axis."""
    names = [name for name in look if any(bar.name == name for bar in bars)]
    width = WIDTH / len(sizes)
    found = [
        (bar, names.index(bar.name) + (sizes.index(bar.world_size) - (len(sizes) - 1) / 2) * width, width)
        for bar in bars
    ]
    axes.set_xticks(range(len(names)), [look[name].label.replace(", ", ",\n").replace(" ", "\n", 1) for name in names])
    axes.tick_params(axis="x", length=0, pad=12 if len(sizes) > 1 else 3)
    for bar, x, _ in found if len(sizes) > 1 else ():
        axes.annotate(
            f"{bar.world_size}", (x, 0), (0, -3), xycoords=("data", "axes fraction"), textcoords="offset points",
            ha="center", va="top", fontsize=7, color=GREY,
        )  # fmt: skip
    axes.set_xlim(-0.55, len(names) - 0.45)
    axes.grid(False, axis="x")
    return found


def _handles(rows: Sequence[BarRow]) -> list[Line2D | Patch]:
    found: list[Line2D | Patch] = [
        Patch(label="mean over seeds", facecolor=GREY, alpha=0.45, linewidth=0),
        Line2D([], [], label="a seed", color=GREY, linestyle="", marker="o", markersize=4),
    ]
    if any(row.bound(bar) is not None for row in rows for bar in row.bars):
        label = r"bound by the time of a sync: $\rho/H$, overlapped $\max(0, 2\rho-1)/H$"
        found.append(Line2D([], [], label=label, color=INK, linewidth=1.5))
    found += [Patch(label=part, facecolor=SHADES[part], linewidth=0) for part in PARTS]
    if any(len(row.sizes) > 1 for row in rows):
        found.append(Line2D([], [], label="grey numbers: world size", linestyle=""))
    return found
