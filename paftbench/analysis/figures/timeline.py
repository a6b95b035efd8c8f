"""Which rank was struck when, and when ranks were averaged: a panel per fault, of its first seed."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from paftbench.analysis.figures.periods import deciding, draw_estimates, draw_periods, estimates
from paftbench.analysis.figures.series_style import GREY, INK, SeriesStyle, styles_of
from paftbench.analysis.figures.style import canvas
from paftbench.analysis.figures.traces import draw_marks, trace
from paftbench.analysis.panels import NothingToDraw, Panel, hardest, panels
from paftbench.analysis.runs import Run, Sweep
from paftbench.analysis.text import compact
from paftbench.records.roles import AVERAGING_LIMIT, GOLDEN

MANY = 6  # panels
MOST_RANKS = 256
LINE = 135  # letters above a panel, bold ones counting more


def figure(sweep: Sweep) -> Figure:
    """A row of ticks per rank for strikes, and one per mitigation for its synchronisations.

    Where a mitigation chose its periods, they stand below, and the noise it estimated. Of many degrees only the
    largest of each grid is shown.
    """
    shown = panels(sweep)
    shown = shown if len(shown) <= MANY else hardest(shown)
    look = styles_of(shown)
    ranks = max(panel.lead.trial.world_size for panel in shown)
    if ranks > MOST_RANKS:
        raise NothingToDraw(f"a row per rank has no room for {ranks} ranks, more than {MOST_RANKS}")
    syncing = [_syncing(panel) for panel in shown]
    chosen = [{name: runs[:1] for name, runs in deciding(panel).items()} for panel in shown]
    heights = []
    for panel, names, runs in zip(shown, syncing, chosen, strict=True):
        ticks = 0.6 + 0.15 * (panel.lead.trial.world_size + len(names))
        heights += [ticks, *([0.9] if runs else []), *([0.8] if estimates(runs) else [])]
    fig = canvas(9.0, 0.3 + sum(heights))
    every = iter(fig.subplots(len(heights), 1, squeeze=False, height_ratios=heights)[:, 0])
    for panel, names, runs in zip(shown, syncing, chosen, strict=True):
        axes = next(every)
        _draw(axes, panel, names, look)
        for wanted, draw, label in (
            (bool(runs), draw_periods, "chosen H"), (estimates(runs), draw_estimates, r"estimated $\sigma$"),
        ):  # fmt: skip
            if wanted:
                axes.tick_params(labelbottom=False)
                below = next(every)
                below.sharex(axes)
                axes = below
                draw(axes, runs, look)
                axes.set_ylabel(label)
    axes.set_xlabel("completed steps")
    return fig


def struck_steps(run: Run) -> dict[int, set[int]]:
    """Completed steps with a logged strike, by rank."""
    found: dict[int, set[int]] = {rank: set() for rank in range(run.trial.world_size)}
    for row in run.injections():
        found[row.rank].add(row.step + 1)
    return found


def _syncing(panel: Panel) -> list[str]:
    return [
        name
        for name, runs in panel.series.items()
        if name not in (GOLDEN, AVERAGING_LIMIT) and len(trace(runs[0]).synced)
    ]


def _draw(axes: Axes, panel: Panel, names: list[str], look: dict[str, SeriesStyle]) -> None:
    run = panel.lead
    by_rank = struck_steps(run)
    for rank, steps in by_rank.items():
        draw_marks(axes, np.array(sorted(steps), dtype=float), rank, INK)
    # Past the log's size cap the rank is not known, only that the step was struck.
    unknown = sorted(set(trace(run).struck) - set().union(*by_rank.values()))
    for rank in by_rank if unknown else ():
        draw_marks(axes, np.array(unknown, dtype=float), rank, "#cccccc")
    for i, name in enumerate(names):
        draw_marks(axes, trace(panel.series[name][0]).synced, len(by_rank) + i, look[name].color)
    labels = [*(f"rank {rank}" for rank in by_rank), *(f"{look[name].label} syncs" for name in names)]
    axes.set_yticks(range(len(labels)), labels)
    for label, name in zip(axes.get_yticklabels()[len(by_rank) :], names, strict=True):
        label.set_color(look[name].color)
    axes.set_ylim(len(labels) - 0.4, -0.6)
    axes.set_xlim(0, run.trial.steps + 1)
    axes.tick_params(axis="y", length=0)
    axes.grid(False, axis="y")
    note = f"seed {run.sample}: {compact(run.found.strikes.drawn)} strikes"
    if unknown:
        note += "; light: rank not logged"
    axes.set_title(note, loc="right", fontsize=7.5, color=GREY, pad=4)
    above = "\n" if 1.3 * len(panel.title) + len(note) > LINE else ""
    axes.set_title(panel.title + above, loc="left", fontweight="bold", pad=4)
