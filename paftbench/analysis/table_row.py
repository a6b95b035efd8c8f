"""What a table says of a cell."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from statistics import median
from typing import Any, Final, Literal

from paftbench.analysis.cells import Cell, gap_over, overhead
from paftbench.analysis.effects import detectable_of, examples_of
from paftbench.analysis.quality import broken, quality
from paftbench.analysis.runs import VIEWS, Run, Sweep, View
from paftbench.analysis.stats import ClaimKind, Summary, mean_of, summarise, wilson

_PARTS: Final = {
    "divergence": ("final", "max", "before_sync"), "nsr": ("median", "max"), "strikes": ("drawn", "landed", "changed"),
}  # fmt: skip
Gap = float | Literal["no gap"] | None


@dataclass(frozen=True, kw_only=True)
class PartialMean:
    """The mean over those of the finished trials that have a value, and how many these are; None where none has."""

    mean: float | None
    count: int


@dataclass(frozen=True, kw_only=True)
class Rate:
    """How often an outcome came out, with Wilson's interval."""

    hits: int
    of: int
    rate: float
    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class Periods:
    """Of the synchronisations of all runs of a cell."""

    lowest: float
    median: float
    highest: float


@dataclass(frozen=True, kw_only=True)
class TableRow:
    """A cell in numbers; None is what was not measured.

    `qualities` are each view's metric, a run that broke down counting as chance (`analysis.quality`), `broke_down` how
    many did. `gaps` are what was closed of each view's, beside its spread. `claim` goes by the seeds that count in the
    judged metric. `detectable` is the smallest mean difference from golden and from plain DDP, by the judge, that the
    seeds at hand would show (`stats.detectable`), `examples` of how many evaluated ones the metric is the mean.
    `parts` has divergence, nsr and strikes by their keys in a result.
    """

    grid: str
    cell: str
    labels: Mapping[str, Any]
    trials: int
    finished: int
    seeds: int
    claim: ClaimKind
    outcomes: Mapping[str, int]
    rates: Mapping[str, Rate]
    metric: str | None
    judge: View
    tolerance: float
    examples: int | None
    broke_down: int
    qualities: Mapping[View, Summary]
    gaps: Mapping[View, tuple[Gap, Summary]]
    parts: Mapping[str, Mapping[str, PartialMean]]
    detectable: Mapping[str, float | None]
    periods: Periods | None
    extra_bytes: PartialMean
    overhead: PartialMean

    @property
    def gap_closed(self) -> Gap:
        """The judge's: a number, "no gap", or None where there is nothing to compare with."""
        return self.gaps[self.judge][0]

    def part(self, key: str) -> PartialMean:
        """Such as `nsr.max`."""
        name, _, part = key.partition(".")
        return self.parts[name][part]


def row_of(sweep: Sweep, cell: Cell) -> TableRow:
    """A cell's row."""
    judge = cell.runs[0].judge
    seeds = [run.sample for run in cell.done]
    return TableRow(
        grid=cell.grid,
        cell=cell.text,
        labels=dict(cell.labels),
        trials=len(cell.runs),
        finished=len(cell.done),
        seeds=cell.seeds,
        claim=cell.claim,
        outcomes=cell.outcomes(),
        rates=_rates(cell),
        metric=next((name for run in cell.done if (name := run.found.metric.name)), None),
        judge=judge,
        tolerance=float(cell.runs[0].planned.tolerance),
        examples=examples_of(cell.done),
        broke_down=broken(cell.done),
        qualities={view: summarise(seeds, [quality(sweep, run, view) for run in cell.done]) for view in VIEWS},
        gaps={view: gap_over(sweep, cell.done, view) for view in VIEWS},
        parts={
            key: {part: _measured(cell.done, attrgetter(f"found.{key}.{part}")) for part in parts}
            for key, parts in _PARTS.items()
        },
        detectable=detectable_of(sweep, cell.done, judge),
        periods=_periods(cell),
        extra_bytes=_measured(cell.done, attrgetter("found.mitigation.bytes")),
        overhead=_measured(cell.done, lambda run: overhead(sweep, run)),
    )


def as_mapping(row: TableRow) -> dict[str, Any]:
    """A row of `table --json`: numbers first; `measured` says of how many trials each is the mean."""
    parts = row.parts.items()
    return {
        "grid": row.grid,
        "cell": row.cell,
        "labels": dict(row.labels),
        "trials": row.trials,
        "finished": row.finished,
        "seeds": row.seeds,
        "claim": row.claim,
        "outcomes": row.outcomes,
        "rates": {outcome: vars(rate) for outcome, rate in row.rates.items()},
        "metric": row.metric,
        "judge": row.judge,
        "tolerance": row.tolerance,
        "examples": row.examples,
        "broke_down": row.broke_down,
        **{view: summary.mean for view, summary in row.qualities.items()},
        "gap_closed": row.gap_closed,
        "gap_closed_by_view": {view: gap for view, (gap, _) in row.gaps.items()},
        **{key: {part: own.mean for part, own in measured.items()} for key, measured in parts},
        "detectable": row.detectable,
        "periods": None if row.periods is None else vars(row.periods),
        "extra_bytes": row.extra_bytes.mean,
        "overhead": row.overhead.mean,
        "measured": {
            **{view: len(summary.points) for view, summary in row.qualities.items()},
            "gap_closed": len(row.gaps[row.judge][1].points),
            **{key: {part: own.count for part, own in measured.items()} for key, measured in parts},
            "extra_bytes": row.extra_bytes.count,
            "overhead": row.overhead.count,
        },
        "points": {
            **{view: summary.points for view, summary in row.qualities.items()},
            "gap_closed": row.gaps[row.judge][1].points,
        },
        "ranges": {
            **{view: summary.bounds for view, summary in row.qualities.items()},
            "gap_closed": {view: summary.bounds for view, (_, summary) in row.gaps.items()},
        },
    }


def _measured(runs: Sequence[Run], value: Callable[[Run], float | None]) -> PartialMean:
    known = [number for run in runs if (number := value(run)) is not None]
    return PartialMean(mean=mean_of(known), count=len(known))


def _periods(cell: Cell) -> Periods | None:
    periods = [period for run in cell.done for period in run.found.mitigation.periods or ()]
    return Periods(lowest=min(periods), median=median(periods), highest=max(periods)) if periods else None


def _rates(cell: Cell) -> dict[str, Rate]:
    rated = cell.rated()
    rates = {}
    for outcome in sorted({run.outcome for run in rated}):
        hits = sum(run.outcome == outcome for run in rated)
        low, high = wilson(hits, len(rated))
        rates[outcome] = Rate(hits=hits, of=len(rated), rate=hits / len(rated), low=low, high=high)
    return rates
