"""Table 3 as dots: what a step costs over plain DDP's in the same run, by number of workers."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from paftbench.analysis.figures.series_style import SeriesStyle
from paftbench.analysis.figures.style import canvas, legend_on_top
from paftbench.analysis.runs import Sweep
from paftbench.paper.figures.parts import draw_seeds, handles_of, look_of, sign, title_ours, title_theirs
from paftbench.paper.items import Item
from paftbench.paper.measured import overhead_of, runs_of
from paftbench.paper.overhead_claims import overhead as printed_overhead

Points = Mapping[str, Mapping[int, Sequence[float]]]


def figure(item: Item, sweep: Sweep, scale: str) -> Figure:
    """Ours of every seed with their means, and the printed ones."""
    methods = [method for method in item.methods if method != "ddp"]
    looked = {method: look_of(method, None, ()) for method in methods}
    runs = [run for method in item.methods for run in runs_of(sweep, method)]
    fig = canvas(9.2, 3.0)
    left, right = fig.subplots(1, 2)
    ours = {method: overheads(sweep, method) for method in methods}
    theirs = {method: {size: [printed_overhead(method, size)] for size in item.world_sizes} for method in methods}
    left.set_title(title_ours(sweep, runs, scale), loc="left", fontweight="bold")
    right.set_title(title_theirs(item.setting), loc="left", fontweight="bold")
    for axes, points in ((left, ours), (right, theirs)):
        _dots(axes, looked, points)
    sign(fig, item, "printed; its plain DDP does not overlap its all-reduces with the backward pass")
    legend_on_top(fig, handles_of(item, [(method, None, look) for method, look in looked.items()], marked=True))
    return fig


def overheads(sweep: Sweep, method: str) -> dict[int, list[float]]:
    """Our overheads in %, by number of workers."""
    found: dict[int, list[float]] = {}
    for run in runs_of(sweep, method):
        value = overhead_of(sweep, run)
        if value is not None:
            found.setdefault(run.trial.world_size, []).append(value)
    return found


def _dots(axes: Axes, looked: Mapping[str, SeriesStyle], points: Points) -> None:
    sizes = sorted({size for own in points.values() for size in own})
    for (method, look), shift in zip(looked.items(), np.linspace(-0.12, 0.12, len(looked)), strict=True):
        for place, size in enumerate(sizes):
            values = points[method].get(size, ())
            draw_seeds(axes, place + shift, values, look, dash=(40, 0.9), size=38)
    axes.axhline(0, color="#999999", linewidth=0.8, zorder=1)
    axes.grid(False, axis="x")
    axes.set_xticks(range(len(sizes)), [str(size) for size in sizes])
    axes.set_xlim(-0.5, max(len(sizes) - 0.5, 0.5))
    axes.tick_params(axis="x", length=0)
    axes.set_xlabel("workers", labelpad=2)
    axes.set_ylabel("step time over plain DDP's, %")
    low, high = axes.get_ylim()
    axes.set_ylim(min(low, -1.0), max(high, 1.0))
