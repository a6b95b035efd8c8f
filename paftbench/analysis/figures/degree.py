"""Quality at the end over the degree of a fault: the picture of a sweep, a panel per grid and a row per workload."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from paftbench.analysis.degrees import FIELD_NSR, Ladder, ladders
from paftbench.analysis.figures.edge import MARKS, OFF_SCALE, draw_edge
from paftbench.analysis.figures.scale import AxisScale, brief, places
from paftbench.analysis.figures.series_style import GREY, INK, SeriesStyle, styles_of
from paftbench.analysis.figures.style import canvas, legend_on_top
from paftbench.analysis.quality import quality
from paftbench.analysis.runs import Run, Sweep
from paftbench.analysis.stats import INTERVAL, summarise
from paftbench.looks import find_look
from paftbench.records.outcome import BROKEN
from paftbench.records.roles import GOLDEN

COLUMNS, HEIGHT = 3, 3.0
FIELD = f"NSR {FIELD_NSR:g}: worst in the field (Ma et al. 2025)"
CHANCE = "chance"


def figure(sweep: Sweep) -> Figure:
    """A line per mitigation through the means over seeds, every seed a point, golden's range as a band.

    The upper axis says how strong the noise really was. `NothingToDraw` where no grid sweeps a degree.
    """
    found = ladders(sweep)
    look = styles_of([ladder.panel for ladder in found])
    rows = [row for group in _by_workload(found) for row in _chunks(group)]
    columns = max(map(len, rows))
    fig = canvas(max(5.2, 3.6 * columns), HEIGHT * len(rows))
    parts = fig.subfigures(len(rows), columns, squeeze=False)
    drawn: set[str] = set()
    for line, row in zip(parts, rows, strict=True):
        for part, ladder in zip(line, row, strict=False):
            part.suptitle(ladder.title, x=0.02, ha="left", fontsize=8, fontweight="bold")
            drawn |= draw_ladder(part.add_subplot(), ladder, look, leftmost=ladder is row[0])
    legend_on_top(fig, _handles(look, drawn))
    return fig


def draw_ladder(axes: Axes, ladder: Ladder, look: dict[str, SeriesStyle], leftmost: bool = True) -> set[str]:
    """One panel; returns which kinds of extra marks the legend has to explain."""
    at = places(ladder.degrees)
    gap = min(np.diff(sorted(at.values())), default=1.0)
    low, high = min(at.values()) - 0.45 * gap, max(at.values()) + 0.45 * gap
    axes.set_xlim(low, high)
    room = min(gap, 0.2 * (high - low))
    names = [name for name in look if name in ladder.names]
    shifts = np.linspace(-0.13, 0.13, len(names)) * room if len(names) > 1 else np.zeros(1)
    scale = AxisScale.of(ladder)
    drawn = _draw_references(axes, ladder, look, scale)
    for name, shift in zip(names, shifts, strict=True):
        drawn |= _draw_series(axes, ladder, name, look[name], {degree: x + shift for degree, x in at.items()}, scale)
    marks = {
        (name, degree): [mark for run in ladder.at(name, degree) if (mark := _mark(ladder, run, scale))]
        for name in names
        for degree in ladder.degrees
    }
    drawn |= draw_edge(axes, marks, at, room, look, scale)
    axes.set_xticks(list(at.values()), [brief(degree) for degree in at])
    axes.set_xlabel(f"degree ({ladder.unit}), log scale", labelpad=2)
    axes.grid(False, axis="x")
    if leftmost:
        axes.set_ylabel(f"{ladder.panel.metric.replace('_', ' ')}, {ladder.panel.judge.replace('_', ' ')}")
    _draw_nsr(axes, ladder, at)
    return drawn


def _draw_references(axes: Axes, ladder: Ladder, look: dict[str, SeriesStyle], scale: AxisScale) -> set[str]:
    """Golden's mean and range, the chance level, and the field's worst ratio where they are on the axes."""
    drawn = set()
    golden = scale.known(ladder.panel.series.get(GOLDEN, ()))
    if golden:
        axes.axhspan(min(golden), max(golden), color="#d9d9d9", zorder=1, linewidth=0)
        axes.axhline(float(np.mean(golden)), linewidth=1.0, **look[GOLDEN].of_line())
    chance = ladder.panel.lead.found.metric.chance
    if chance is not None and scale.low <= chance <= scale.high:
        axes.axhline(chance, color=GREY, linewidth=0.8, linestyle=":", zorder=1.5)
        drawn.add(CHANCE)
    field = ladder.degree_of(FIELD_NSR)
    if field is not None:
        low, high = axes.get_xlim()
        if low < (x := float(np.log10(field))) < high:
            axes.axvline(x, color=GREY, linewidth=0.9, linestyle=(0, (1.5, 2)), zorder=1.5)
            drawn.add(FIELD)
    return drawn


def _draw_series(
    axes: Axes, ladder: Ladder, name: str, look: SeriesStyle, at: dict[float, float], scale: AxisScale
) -> set[str]:
    """Means as a line that stops where a seed has no number, seeds as points, the interval of 5 seeds as a band.

    A run that broke down is no point; in the mean it counts as chance, as in every other mean.
    """
    x, means, lows, highs = [], [], [], []
    for degree, place in at.items():
        runs = ladder.at(name, degree)
        if not runs:
            continue
        values = [quality(ladder.panel.sweep, run, scale.judge) for run in runs]
        # A run without a number, which ended in an error of ours, is not left out of the mean: the line stops.
        known = summarise([run.sample for run in runs], [float("nan") if v is None else v for v in values])
        points = [value for value in scale.known(runs) if scale.shows(value)]
        axes.scatter(
            [place] * len(points), points, color=look.color, marker=look.marker, s=11, alpha=0.45, linewidths=0,
            zorder=look.order - 0.5,
        )  # fmt: skip
        bounded = known.claim == "interval"
        x.append(place)
        means.append(known.mean if known.mean is not None and scale.shows(known.mean) else np.nan)
        lows.append(known.low if bounded and known.low is not None else np.nan)
        highs.append(known.high if bounded and known.high is not None else np.nan)
    axes.plot(x, means, linewidth=1.6, marker=look.marker, markersize=3.6, markeredgewidth=0, **look.of_line())
    broken = np.isnan(means)
    low, high = (np.clip(np.where(broken, np.nan, bound), scale.low, scale.high) for bound in (lows, highs))
    axes.fill_between(x, low, high, color=look.color, alpha=0.15, linewidth=0, zorder=look.order - 1.5)
    return {INTERVAL} if np.isfinite(low).any() else set()


def _mark(ladder: Ladder, run: Run, scale: AxisScale) -> str | None:
    """What the edge of the panel has to say of a run: how it broke, or that its number is not on the axis."""
    if run.outcome in BROKEN:
        return run.outcome
    value = run.metric(scale.judge)
    if value is None or not np.isfinite(value):
        return "nonfinite"
    return None if scale.shows(value) else OFF_SCALE


def _draw_nsr(axes: Axes, ladder: Ladder, at: dict[float, float]) -> None:
    realised = ladder.realised
    if realised is None:
        return
    upper = axes.secondary_xaxis("top")
    upper.set_xticks(list(at.values()), [brief(value, digits=2) for value in realised.values])
    upper.set_xlabel(f"realised NSR under plain DDP, {realised.of}", labelpad=3, fontsize=7.5)
    upper.tick_params(labelsize=7, colors=INK)


def _handles(look: dict[str, SeriesStyle], drawn: set[str]) -> list[Line2D | Patch]:
    found: list[Line2D | Patch] = [
        Line2D([], [], label=own.label, linewidth=1.8, markersize=4, marker=own.marker.strip("_"), **own.of_line())
        for own in look.values()
    ]
    if INTERVAL in drawn:
        found.append(Patch(label=f"{INTERVAL} interval of the mean", facecolor=GREY, alpha=0.25, linewidth=0))
    if CHANCE in drawn:
        found.append(Line2D([], [], label=CHANCE, color=GREY, linewidth=0.9, linestyle=":"))
    if FIELD in drawn:
        found.append(Line2D([], [], label=FIELD, color=GREY, linewidth=0.9, linestyle=(0, (1.5, 2))))
    for kind, marker in MARKS.items():
        if kind in drawn:
            found.append(Line2D([], [], label=f"{kind} run", color=INK, linestyle="", marker=marker, markersize=6))
    return found


def _by_workload(found: Sequence[Ladder]) -> list[list[Ladder]]:
    groups: dict[str, list[Ladder]] = {}
    for ladder in found:
        groups.setdefault(ladder.panel.workload, []).append(ladder)
    return sorted(groups.values(), key=lambda group: find_look(group[0].panel.lead.workload).order)


def _chunks(group: Sequence[Ladder]) -> list[Sequence[Ladder]]:
    return [group[i : i + COLUMNS] for i in range(0, len(group), COLUMNS)]
