"""Series of a run as arrays, and how panels draw them: S = seeds, t = steps, e = evaluations."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import ceil, floor, isfinite, log10

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FixedFormatter, FixedLocator, NullLocator
from numpy.typing import NDArray

from paftbench.analysis.figures.series_style import INK, SeriesStyle
from paftbench.analysis.panels import Panel
from paftbench.analysis.runs import Run, View
from paftbench.records.roles import AVERAGING_LIMIT, GOLDEN
from paftbench.records.step import DecisionRow

Floats = NDArray[np.float64]
LOWEST = -240  # decades: around it a float has room for the strip of zero, and as far above one for the axis
DECADES = 60  # flipped exponents reach 1e38 in fp32, and fp64 would leave a saw-tooth no height


@dataclass(frozen=True, kw_only=True)
class Trace:
    """steps.jsonl of one run; `spread` at `at` falls vertically where a synchronisation does.

    `ended`: completed steps of the whole log. `decisions`: completed steps and what a mitigation chose after them.
    """

    ended: int
    at: Floats
    spread: Floats
    struck: Floats
    synced: Floats
    decisions: tuple[tuple[int, DecisionRow], ...]


@lru_cache(maxsize=512)
def trace(run: Run) -> Trace:
    """Completed steps count from 1: what step 0 left behind stands at 1."""
    at: list[float] = []
    spread: list[float] = []
    rows = run.steps()
    for row in rows:
        for value in (row.divergence_before, row.divergence):
            if value is not None:
                at.append(row.step + 1)
                spread.append(float(value))
    return Trace(
        ended=rows[-1].step + 1 if rows else 0,
        at=np.array(at, dtype=float),
        spread=np.array(spread, dtype=float),
        struck=np.array([row.step + 1 for row in rows if row.strikes], dtype=float),
        synced=np.array([row.step + 1 for row in rows if row.synced], dtype=float),
        decisions=tuple((row.step + 1, row.decision) for row in rows if row.decision),
    )


def history(run: Run, view: View) -> tuple[Floats, Floats]:
    """Evaluations: completed steps [e] and the metric [e], NaN where it was not finite."""
    steps = np.array(run.found.history.step, dtype=float)
    values = np.array(run.found.history.of(view), dtype=float)
    return steps, np.where(np.isfinite(values), values, np.nan)


def draw_seeds(axes: Axes, lines: Sequence[tuple[Floats, Floats]], look: SeriesStyle, width: float = 1.6) -> None:
    """Each seed as a thin line, and their median on top."""
    draw_thin(axes, lines, look, 0.6)
    x, values = aligned(lines)
    axes.plot(x, np.median(values, axis=0), linewidth=width, **look.of_line())


def draw_thin(axes: Axes, lines: Sequence[tuple[Floats, Floats]], look: SeriesStyle, width: float) -> None:
    """Each of several seeds as a thin line, below what stands for all of them."""
    for x, y in lines if len(lines) > 1 else ():
        if len(x):
            axes.plot(x, y, color=look.color, linewidth=width, alpha=0.4, zorder=look.order - 1)


def aligned(lines: Sequence[tuple[Floats, Floats]]) -> tuple[Floats, Floats]:
    """Steps [t] and every line's values at them, [S, t].

    NaN where a line has none: a step at which some seed is not finite, or has ended, has no mean and no median.
    """
    if not any(len(x) for x, _ in lines):
        return np.zeros(0), np.zeros((1, 0))
    if all(np.array_equal(x, lines[0][0]) for x, _ in lines):
        return lines[0][0], np.stack([y for _, y in lines])
    return on_common_steps(lines)


def on_common_steps(lines: Sequence[tuple[Floats, Floats]]) -> tuple[Floats, Floats]:
    """Each step of any line twice, [2t], and each line's first and last value at it, [S, 2t]; NaN where it has none."""
    steps = np.unique(np.concatenate([x for x, _ in lines]))
    rows = []
    for x, y in lines:
        first, after = np.searchsorted(x, steps, side="left"), np.searchsorted(x, steps, side="right")
        known = after > first
        pairs = np.full((len(steps), 2), np.nan)
        pairs[known] = np.stack([y[first[known]], y[after[known] - 1]], axis=1)
        rows.append(pairs.ravel())
    return np.repeat(steps, 2), np.stack(rows)


def draw_curves(axes: Axes, panel: Panel, looks: dict[str, SeriesStyle]) -> None:
    """The judged metric over steps; a loss is cut a little above its untrained value."""
    for name, runs in panel.series.items():
        draw_seeds(axes, [history(run, panel.judge) for run in runs], looks[name])
    if panel.lead.found.metric.direction == "min":
        starts = [y[0] for runs in panel.series.values() for run in runs if len(y := history(run, panel.judge)[1])]
        low, high = axes.get_ylim()
        if starts and np.isfinite(starts).any():
            axes.set_ylim(low, min(high, low + 1.1 * (float(np.nanmax(starts)) - low)))
    axes.set_ylabel(f"{panel.metric.replace('_', ' ')}, {panel.judge.replace('_', ' ')}")


def draw_divergence(axes: Axes, panel: Panel, looks: dict[str, SeriesStyle]) -> None:
    """Divergence on a log axis; zero has a place of its own at the bottom, what is above the axis is said in words."""
    traces = {name: [trace(run) for run in runs] for name, runs in panel.series.items() if name != GOLDEN}
    values = np.concatenate([t.spread for group in traces.values() for t in group] or [np.zeros(0)])
    positive = values[np.isfinite(values) & (values > 0)]
    low = min(max(floor(log10(positive.min())), LOWEST), -LOWEST) if len(positive) else -3
    high = min(ceil(log10(positive.max())) if len(positive) else 0, low + DECADES)
    high = max(high, low + 1)
    unit = max(0.2, (high - low) / 20)  # the strip of zero keeps its share of the height
    zero, top = 10.0 ** (low - 3 * unit), 10.0**high
    for name, group in traces.items():
        placed = [(t.at, np.clip(np.nan_to_num(t.spread, nan=np.inf, posinf=np.inf), zero, top)) for t in group]
        draw_seeds(axes, placed, looks[name], width=1.1)
    axes.set_yscale("log")
    axes.set_ylim(10.0 ** (low - 4 * unit), top * 10.0**unit)
    axes.axhspan(10.0 ** (low - 4 * unit), 10.0 ** (low - 1.5 * unit), color="#f3f3f3", zorder=0, linewidth=0)
    every = next(step for step in (1, 2, 5, 10, 20) if (high - low) / step <= 5)
    powers = range(ceil(low / every) * every, high + 1, every)
    axes.yaxis.set_major_locator(FixedLocator([zero, *(10.0**power for power in powers)]))
    axes.yaxis.set_major_formatter(FixedFormatter(["0", *(f"$10^{{{power}}}$" for power in powers)]))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.set_ylabel("divergence")
    _say_what_is_above(axes, traces, top, looks)


def _say_what_is_above(axes: Axes, traces: dict[str, list[Trace]], top: float, looks: dict[str, SeriesStyle]) -> None:
    lines = []
    for name, group in traces.items():
        largest = max((float(np.max(np.nan_to_num(t.spread, nan=np.inf))) for t in group if len(t.spread)), default=0.0)
        if largest > top:
            size = f"up to $10^{{{floor(log10(largest))}}}$" if isfinite(largest) else "not finite"
            lines.append((f"{looks[name].label}: {size}", looks[name].color))
    box = {"facecolor": "white", "alpha": 0.8, "linewidth": 0, "pad": 1}
    for i, (text, color) in enumerate(lines):
        axes.text(
            0.99, 0.9 - 0.1 * i, text, color=color, fontsize=7, ha="right", va="top", transform=axes.transAxes, bbox=box
        )


def tick_rows(panel: Panel, looks: dict[str, SeriesStyle]) -> list[tuple[str, Floats, str]]:
    """Rows of ticks, of the first seed: label, steps and colour of strikes, then of each mitigation's syncs."""
    rows = [("strikes", trace(panel.lead).struck, INK)]
    for name, runs in panel.series.items():
        synced = trace(runs[0]).synced
        if len(synced) and name not in (GOLDEN, AVERAGING_LIMIT):
            rows.append(("syncs" if len(rows) == 1 else "", synced, looks[name].color))
    return rows


def tick_height(panel: Panel, looks: dict[str, SeriesStyle]) -> float:
    """Height of the ticks where a panel has 7."""
    return 0.1 + 0.55 * len(tick_rows(panel, looks))


def draw_ticks(axes: Axes, panel: Panel, looks: dict[str, SeriesStyle]) -> None:
    """Steps with strikes and with synchronisations."""
    rows = tick_rows(panel, looks)
    for i, (_, steps, color) in enumerate(rows):
        draw_marks(axes, steps, i, color)
    axes.set_ylim(len(rows) - 0.45, -0.5)
    axes.set_yticks(range(len(rows)), [label for label, _, _ in rows])
    axes.tick_params(axis="both", length=0)
    axes.tick_params(axis="y", labelsize=7)
    axes.grid(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_visible(False)
    axes.set_xlabel("completed steps", labelpad=1)


def draw_marks(axes: Axes, steps: Floats, height: float, color: str) -> None:
    """A tick per step at `height`; steps in a row are a bar, not a comb."""
    stretches = _stretches(steps)
    bars = [(first - 0.5, last - first + 1) for first, last in stretches if last > first]
    ticks = [first for first, last in stretches if last == first]
    if bars:
        axes.broken_barh(bars, (height - 0.3, 0.6), color=color, linewidth=0)
    if ticks:
        axes.vlines(ticks, height - 0.36, height + 0.36, color=color, linewidth=0.9)


def _stretches(steps: Floats) -> list[tuple[float, float]]:
    """Steps in a row as (first, last)."""
    if not len(steps):
        return []
    parts = np.split(steps, np.flatnonzero(np.diff(steps) > 1) + 1)
    return [(float(part[0]), float(part[-1])) for part in parts]
