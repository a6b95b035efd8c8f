"""The periods that a mitigation chose: a panel per degree, every seed thin, the median over seeds thick."""

from collections.abc import Mapping, Sequence
from math import isfinite
from textwrap import fill

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

from paftbench.analysis.figures.scale import brief
from paftbench.analysis.figures.series_style import GREY, INK, SeriesStyle, styles_of
from paftbench.analysis.figures.style import canvas, legend_on_top
from paftbench.analysis.figures.traces import Floats, trace
from paftbench.analysis.panels import NothingToDraw, Panel, by_model, panels
from paftbench.analysis.runs import Run, Sweep
from paftbench.looks import find_look

COLUMNS = 4
Deciding = Mapping[str, Sequence[Run]]


def figure(sweep: Sweep) -> Figure:
    """A row per workload and grid; below the periods the noise that a rule estimated, where it was logged."""
    shown = [(panel, deciding(panel)) for panel in panels(sweep)]
    shown = [(panel, runs) for panel, runs in shown if runs]
    if not shown:
        raise NothingToDraw("no finished trial has a mitigation that chose its periods")
    look = styles_of([panel for panel, _ in shown])
    rows = _rows(shown)
    columns = max(map(len, rows))
    heights = [2.9 if any(estimates(runs) for _, runs in row) else 2.1 for row in rows]
    fig = canvas(max(5.2, 2.9 * columns), sum(heights))
    for line, row in zip(fig.subfigures(len(rows), 1, squeeze=False, height_ratios=heights)[:, 0], rows, strict=True):
        title, names = _titles([panel for panel, _ in row])
        if len({name for _, runs in shown for name in runs}) > 2:
            title += f", {', '.join(look[name].label for name in row[0][1])}"
        line.suptitle(title, x=0.008, ha="left", fontsize=8.5, fontweight="bold")
        for part, name, (panel, runs) in zip(line.subfigures(1, columns, squeeze=False)[0], names, row, strict=False):
            axes = part.subplots(2, 1, sharex=True, height_ratios=[2, 1.2]) if estimates(runs) else [part.subplots()]
            axes[0].set_title(name, loc="left", fontsize=8, pad=4)
            draw_periods(axes[0], runs, look)
            if len(axes) > 1:
                draw_estimates(axes[1], runs, look)
            if panel is row[0][0]:
                axes[0].set_ylabel("chosen period H")
                axes[-1].set_ylabel("chosen period H" if len(axes) == 1 else r"estimated $\sigma$")
            axes[-1].set_xlabel("completed steps", labelpad=2)
    legend_on_top(fig, _handles(shown, look))
    return fig


def deciding(panel: Panel) -> dict[str, tuple[Run, ...]]:
    """The runs that logged decisions, by mitigation."""
    found = {name: tuple(run for run in runs if trace(run).decisions) for name, runs in panel.series.items()}
    return {name: runs for name, runs in found.items() if runs}


def draw_periods(axes: Axes, runs_by_name: Deciding, look: Mapping[str, SeriesStyle]) -> None:
    """A step line per run, a marker per decision; the bounds dotted. Seeds stand a little apart."""
    bounds = set()
    steps = max(run.trial.steps for runs in runs_by_name.values() for run in runs)
    for name, runs in runs_by_name.items():
        apart = np.linspace(-0.16, 0.16, len(runs)) if len(runs) > 1 else np.zeros(1)
        for run, shift in zip(runs, apart, strict=True):
            x, y = _stairs(run)
            alone = len(runs) == 1
            axes.step(
                x, y + shift, where="post", color=look[name].color, linewidth=1.4 if alone else 0.6,
                alpha=1 if alone else 0.5, zorder=look[name].order - 1,
            )  # fmt: skip
            axes.scatter(
                x[1:-1], y[1:-1] + shift, color=look[name].color, marker=look[name].marker, s=8, linewidths=0,
                alpha=0.8, zorder=look[name].order,
            )  # fmt: skip
            given = [value for own in run.trial.mitigations for value in (own.period_min, own.period_max)]
            bounds |= {bound for bound in given if type(bound) in (int, float) and isfinite(bound)}
        if len(runs) > 1:
            every = np.arange(min(steps, max(trace(run).ended for run in runs)), dtype=float)
            level = np.median([_level(run, every) for run in runs], axis=0)
            axes.step(every, level, where="post", color=look[name].color, linewidth=1.6, zorder=look[name].order + 1)
    for bound in bounds:
        axes.axhline(bound, color=GREY, linewidth=0.7, linestyle=":", zorder=1)
    axes.set_xlim(0, steps + 1)
    axes.set_ylim(0, 1.08 * max(axes.get_ylim()[1], max(bounds, default=0) + 0.3))
    axes.yaxis.set_major_locator(MaxNLocator(6, integer=True, steps=[1, 2, 5, 10]))


def draw_estimates(axes: Axes, runs_by_name: Deciding, look: Mapping[str, SeriesStyle]) -> None:
    """The noise that was estimated at each decision; dashed, the one that was injected into every element."""
    for name, runs in runs_by_name.items():
        for run in runs:
            points = [(step, d.sigma) for step, d in trace(run).decisions if _positive(d.sigma)]
            axes.plot(
                *zip(*points, strict=True) if points else ((), ()), color=look[name].color, linewidth=0.5, alpha=0.7,
                marker=look[name].marker, markersize=2.6, markeredgewidth=0,
            )  # fmt: skip
    lead = next(iter(runs_by_name.values()))[0]
    faults = lead.trial.faults
    if len(faults) == 1 and find_look(faults[0].model).std_unit == faults[0].unit and faults[0].degree:
        axes.axhline(faults[0].degree, color=INK, linewidth=0.9, linestyle="--", zorder=1.5)
    axes.set_yscale("log")
    low, high = axes.get_ylim()
    if high / low < 4:  # room for two labels
        axes.set_ylim(low / 2, high * 2)
    subs = (1.0, 2.0, 5.0) if high / low < 30 else (1.0,)
    axes.yaxis.set_major_locator(LogLocator(subs=subs, numticks=5))
    axes.yaxis.set_major_formatter(lambda value, _: brief(value))
    axes.yaxis.set_minor_locator(NullLocator())


def estimates(runs_by_name: Deciding) -> bool:
    """Whether any decision came with an estimate of the noise."""
    return any(
        _positive(decision.sigma)
        for runs in runs_by_name.values()
        for run in runs
        for _, decision in trace(run).decisions
    )


def _positive(value: float | None) -> bool:
    return value is not None and isfinite(value) and value > 0


def _stairs(run: Run) -> tuple[Floats, Floats]:
    """Completed steps and the period from there on: the first one at 0, every choice, and the end of the run."""
    decisions = trace(run).decisions
    x = [0, *(step for step, _ in decisions), trace(run).ended]
    periods = [decision.period for _, decision in decisions]
    return np.array(x, dtype=float), np.array([decisions[0][1].period_before, *periods, periods[-1]], dtype=float)


def _level(run: Run, steps: Floats) -> Floats:
    """The period after each number of completed steps; NaN once the run has ended, as it has no period then."""
    x, y = _stairs(run)
    return np.where(steps <= x[-1], y[np.searchsorted(x, steps, side="right") - 1], np.nan)


def _rows(shown: Sequence[tuple[Panel, Deciding]]) -> list[list[tuple[Panel, Deciding]]]:
    """A row per workload and grid; of more than two mitigations one each, since their lines would cover each other."""
    together: dict[tuple[str, str], set[str]] = {}
    for panel, runs in shown:
        together.setdefault((panel.workload, panel.grid), set()).update(runs)
    groups: dict[tuple[str, ...], list[tuple[Panel, Deciding]]] = {}
    for panel, runs in shown:
        place = (panel.workload, panel.grid)
        parts = [runs] if len(together[place]) <= 2 else [{name: own} for name, own in runs.items()]
        for part in parts:
            key = place if len(together[place]) <= 2 else (*place, *part)
            groups.setdefault(key, []).append((panel, part))
    ordered = sorted(groups.values(), key=lambda group: by_model(group[0][0].lead))
    return [group[i : i + COLUMNS] for group in ordered for i in range(0, len(group), COLUMNS)]


def _titles(row: Sequence[Panel]) -> tuple[str, list[str]]:
    """What the panels of a row have in common, and what tells each apart: its degree, if that is all."""
    common = {f"{panel.workload}: {panel.kind}{panel.caveat}" for panel in row}
    if len(common) > 1:
        return row[0].workload, [fill(panel.fault, 44) for panel in row]
    return common.pop(), [panel.degree for panel in row]


def _handles(shown: Sequence[tuple[Panel, Deciding]], look: Mapping[str, SeriesStyle]) -> list[Line2D]:
    names = {name for _, runs in shown for name in runs}
    found = [
        Line2D([], [], label=f"{own.label}: each seed, median over seeds", color=own.color, linewidth=1.6,
               marker=own.marker, markersize=3.5)
        for name, own in look.items() if name in names
    ]  # fmt: skip
    found.append(Line2D([], [], label="bounds of the period", color=GREY, linewidth=0.8, linestyle=":"))
    if any(estimates(runs) for _, runs in shown):
        found.append(Line2D([], [], label=r"injected $\sigma$", color=INK, linewidth=0.9, linestyle="--"))
    return found
