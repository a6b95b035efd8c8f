"""Curves of training, ours left and theirs right: accuracy of rank 0 on held-out data, or rank 0's training loss."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from paftbench.analysis.figures.series_style import GREY, SeriesStyle
from paftbench.analysis.figures.style import canvas, legend_on_top
from paftbench.analysis.figures.traces import Floats, aligned, draw_thin, history
from paftbench.analysis.runs import Run, Sweep
from paftbench.paper.figures.parts import draw_periods, handles_of, look_of, sign, title_ours, title_theirs
from paftbench.paper.figures.rows import DYNAMIC, Row, Series, degrees_of, rows_of, series_of
from paftbench.paper.items import Item
from paftbench.paper.published import Curve, curves, plot
from paftbench.records.plan import ScheduleFields

_WINDOW = 30  # of so many parts of a run one is averaged


def figure(item: Item, sweep: Sweep, scale: str) -> Figure:
    """A row per setting; the periods that PAFT chose in a third panel where it ran."""
    rows = rows_of(item, sweep)
    ours = [series_of(item, sweep, row) for row in rows]
    theirs = [_theirs(item, row) for row in rows]
    degrees = degrees_of(item, [series for found in ours for series in found])
    chosen = any(series.method in DYNAMIC for own in ours for series in own)
    fig = canvas(12.6 if chosen else 9.2, 3.0 * len(rows) + 0.2)
    widths = [1.0, 1.0, 0.62] if chosen else [1.0, 1.0]
    panels = fig.subplots(len(rows), len(widths), squeeze=False, width_ratios=widths)
    seen: list[tuple[str, float | None, SeriesStyle]] = []
    for axes, row, own, known in zip(panels, rows, ours, theirs, strict=True):
        looked = [(look_of(series.method, series.degree, degrees), series) for series in own]
        drawn = [(look_of(c.method, c.noise_std if degrees else None, degrees), c) for c in known]
        accuracy = "accuracy" in plot(row.figures[0]).y
        _draw_ours(axes[0], looked, accuracy, item.burst)
        axes[0].set_title(title_ours(sweep, _runs(own), scale, row.ours), loc="left", fontweight="bold")
        _draw_theirs(axes[1], drawn, plot(row.figures[0]).x, plot(row.figures[0]).y)
        axes[1].set_title(title_theirs(row.theirs), loc="left", fontweight="bold")
        if chosen:
            draw_periods(axes[2], [(look, s) for look, s in looked if s.method in DYNAMIC])
        seen += [(series.method, series.degree, look) for look, series in looked]
        seen += [(curve.method, curve.noise_std, look) for look, curve in drawn]
    sign(fig, item, "digitised")
    legend_on_top(fig, handles_of(item, seen))
    return fig


def _runs(found: Sequence[Series]) -> list[Run]:
    return [run for series in found for run in series.runs]


def _theirs(item: Item, row: Row) -> list[Curve]:
    """The digitised curves that the item shows."""
    found = [curve for figure in row.figures for curve in curves(figure) if curve.method in item.methods]
    return sorted(found, key=lambda curve: (item.methods.index(curve.method), curve.noise_std or 0.0))


def _draw_theirs(axes: Axes, shown: Sequence[tuple[SeriesStyle, Curve]], x: str, y: str) -> None:
    for look, curve in shown:
        axes.plot(curve.x, curve.y, linewidth=1.4, **look.of_line())
    axes.set_xlabel(x, labelpad=2)
    axes.set_ylabel(y)
    if "accuracy" in y:
        axes.set_ylim(0, 100)


def _draw_ours(axes: Axes, shown: Sequence[tuple[SeriesStyle, Series]], accuracy: bool, burst: bool) -> None:
    for look, series in shown:
        lines = [_percent(run) if accuracy else _loss(run) for run in series.runs]
        draw_mean(axes, lines, look)
    axes.set_xlabel("completed steps", labelpad=2)
    axes.set_ylabel("test accuracy %, rank 0" if accuracy else "training loss, rank 0, running mean")
    if accuracy:
        axes.set_ylim(0, 100)
    else:
        _cut(axes, [y[0] for _, series in shown for run in series.runs if len(y := _loss(run)[1])])
    for step in _bursts([run for _, series in shown for run in series.runs]) if burst else ():
        axes.axvline(step, color=GREY, linewidth=0.5, alpha=0.5, zorder=0)


def draw_mean(axes: Axes, lines: Sequence[tuple[Floats, Floats]], look: SeriesStyle) -> None:
    """Each seed as a thin line, and their mean on top; it stops where some seed is not finite, or has ended."""
    draw_thin(axes, lines, look, 0.5)
    x, values = aligned(lines)
    axes.plot(x, np.mean(values, axis=0), linewidth=1.7, **look.of_line())


def _percent(run: Run) -> tuple[Floats, Floats]:
    steps, values = history(run, "rank0")
    return steps, 100 * values


def _loss(run: Run) -> tuple[Floats, Floats]:
    """Rank 0's training loss as a running mean over a thirtieth of the run, from its first full window on."""
    rows = run.steps()
    losses = np.array([row.loss[0] for row in rows], dtype=float)
    window = max(1, run.trial.steps // _WINDOW)
    if len(losses) < window:
        return np.zeros(0), np.zeros(0)
    steps = np.array([row.step + 1.0 for row in rows])
    # NaN, not infinity: one that is not finite blanks the windows that hold it, and no others.
    return steps[window - 1 :], np.convolve(
        np.where(np.isfinite(losses), losses, np.nan), np.ones(window), "valid"
    ) / window


def _cut(axes: Axes, starts: Sequence[float]) -> None:
    """A loss that explodes leaves the axis a little above where training starts."""
    low, high = axes.get_ylim()
    if len(starts) and np.isfinite(starts).any():
        axes.set_ylim(low, min(high, low + 1.1 * (float(np.nanmax(starts)) - low)))


def _bursts(runs: Sequence[Run]) -> list[int]:
    """Completed steps that a burst struck."""
    faulty = next((run for run in runs if run.faulty), None)
    if faulty is None:
        return []
    rules = [fault.schedule for fault in faulty.trial.faults if isinstance(fault.schedule, ScheduleFields)]
    rule = next((rule for rule in rules if rule.kind == "burst"), None)
    if rule is None or rule.every is None:
        return []
    steps = range(faulty.trial.steps)
    return [step + 1 for step in steps if (step - rule.offset + 1) % rule.every < rule.length]
