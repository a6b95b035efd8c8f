"""Figure 2b, which the paper prints without numbers: our divergence, and how it compares with the closed form."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from paftbench.analysis.closed_form import closed_form
from paftbench.analysis.figures.series_style import BLACK, SeriesStyle
from paftbench.analysis.figures.style import canvas, legend_on_top
from paftbench.analysis.figures.traces import Floats, trace
from paftbench.analysis.runs import Run, Sweep
from paftbench.paper.figures.curves import draw_mean
from paftbench.paper.figures.parts import handles_of, look_of, sign, title_ours
from paftbench.paper.figures.rows import Row, Series, degrees_of, series_of
from paftbench.paper.items import Item
from paftbench.theory import consensus_factor


def figure(item: Item, sweep: Sweep, scale: str) -> Figure:
    """Left the divergence over steps and its closed form, right the constant of Lemma 3.1 that it shows."""
    found = [series for series in series_of(item, sweep, Row(theirs=item.setting)) if series.method == "ddp"]
    degrees = degrees_of(item, found)
    shown = [(look_of(series.method, series.degree, degrees), series) for series in found]
    fig = canvas(9.2, 3.2)
    left, right = fig.subplots(1, 2)
    runs = [run for _, series in shown for run in series.runs]
    left.set_title(title_ours(sweep, runs, scale), loc="left", fontweight="bold")
    _draw_divergence(left, shown)
    _draw_constant(right, shown)
    sign(fig, item, "no numbers are published; closed form: paftbench.theory.drift")
    named = handles_of(item, [(series.method, series.degree, look) for look, series in shown])
    named.append(Line2D([], [], label="closed form", color=BLACK, linewidth=0.9, linestyle=":"))
    legend_on_top(fig, named)
    return fig


def _draw_divergence(axes: Axes, shown: list[tuple[SeriesStyle, Series]]) -> None:
    for look, series in shown:
        lines = [(trace(run).at, _finite(trace(run).spread)) for run in series.runs]
        draw_mean(axes, lines, look)
        form = closed_form(series.runs[0])
        if form is not None:
            axes.plot(*form, color=BLACK, linewidth=0.9, linestyle=":", zorder=7)
    axes.set_yscale("log")
    axes.set_xlabel("completed steps", labelpad=2)
    axes.set_ylabel("divergence")


def _draw_constant(axes: Axes, shown: list[tuple[SeriesStyle, Series]]) -> None:
    for look, series in shown:
        draw_mean(axes, [ratio for run in series.runs if (ratio := _constants(run)) is not None], look)
    ranks = {run.trial.world_size for _, series in shown for run in series.runs}
    for size in ranks:
        for value, text in (
            ((size + 1) / size, f"(M+1)/M = {(size + 1) / size:g}, as printed"),
            (consensus_factor(size), f"(M-1)/M = {consensus_factor(size):g}"),
        ):
            axes.axhline(value, color=BLACK, linewidth=0.9, linestyle=":", zorder=7)
            axes.text(
                0.99, value + 0.015, text, transform=axes.get_yaxis_transform(), ha="right", va="bottom", fontsize=7.5
            )
    axes.set_ylim(0, 1.6)
    axes.set_xlabel("completed steps", labelpad=2)
    axes.set_ylabel(r"divergence$^2$ / ($d\,\sigma^2\,D^2$)")
    axes.set_title("The constant of Lemma 3.1, measured", loc="left", fontweight="bold")


def _constants(run: Run) -> tuple[Floats, Floats] | None:
    form = closed_form(run)
    if form is None:
        return None
    measured = np.array([np.nan if row.divergence is None else row.divergence for row in run.steps()])
    return form[0], consensus_factor(run.trial.world_size) * (_finite(measured) / form[1]) ** 2


def _finite(values: Floats) -> Floats:
    return np.where(np.isfinite(values), values, np.nan)
