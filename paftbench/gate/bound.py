"""Second mode, bound: no worse than the baseline by more than a margin, seed by seed, whatever the bits do."""

from collections.abc import Callable
from dataclasses import dataclass
from math import isfinite
from statistics import stdev
from typing import Final

from paftbench.analysis.cells import Cell, cells, overhead
from paftbench.analysis.cost import extra_share
from paftbench.analysis.quality import chance, worse_by
from paftbench.analysis.runs import Run, Sweep
from paftbench.analysis.text import number
from paftbench.errors import Refused
from paftbench.gate.baseline import Baseline, BaselineEntry, cell_name
from paftbench.gate.expectations import finding_of
from paftbench.gate.finding import Finding
from paftbench.gate.rule import Bound, SeedValues, by_seed, judge, resolvable
from paftbench.gate.selecting import subject_of
from paftbench.gate.trajectory import tail_of
from paftbench.gate.values import broke, unharmed, unusable
from paftbench.records.outcome import BROKE_DOWN
from paftbench.records.roles import AVERAGING_LIMIT
from paftbench.records.seeds import Seed

# By the closed forms of paftbench.theory (momentum .9), twice the period of PAFT-Sync multiplies the divergence by 1.84
# (state params) or 2.23 (all) at a constant rate, H 5 to 10, and by 1.59 in ci/quick, whose rate decays, H 10 to 20: a
# factor below those finds it. Under noise, seeds of an unchanged system differ by a few per cent.
FACTOR: Final = 1.5
OVERHEAD_FACTOR: Final = 1.25  # step times of the same code on a shared machine differ by a tenth
NO_DRIFT: Final = 1e-6  # a divergence below it is rounding: replicas are equal


def _overhead(sweep: Sweep, run: Run) -> float | None:
    """None for plain DDP, whose overhead over itself says nothing."""
    return overhead(sweep, run) if run.trial.mitigations else None


@dataclass(frozen=True, kw_only=True)
class _BoundedCost:
    """A value that may grow by a factor; `least` is what counts as none of it, `always`: it is measured everywhere."""

    value: str
    factor: float
    now: Callable[[Sweep, Run], float | None]
    then: Callable[[BaselineEntry], float | None]
    least: float = 0.0
    always: bool = True


_COSTS: Final = (
    _BoundedCost(
        value="baseline divergence", factor=FACTOR, least=NO_DRIFT,
        now=lambda _, run: run.found.divergence.max, then=lambda entry: entry.divergence,
    ),
    _BoundedCost(
        value="baseline bytes", factor=FACTOR,
        now=lambda _, run: extra_share(run), then=lambda entry: entry.extra_bytes,
    ),
    _BoundedCost(
        value="baseline overhead", factor=OVERHEAD_FACTOR, always=False,
        now=_overhead, then=lambda entry: entry.overhead,
    ),
)  # fmt: skip


def compare_bounds(baseline: Baseline, sweep: Sweep, margin: float) -> list[Finding]:
    """For each held cell whether quality, divergence, extra bytes and overhead are within their bounds.

    `margin` is how much worse the quality may be, in the metric's unit, > 0.
    """
    found = []
    for cell in held(sweep):
        found.append(_quality(baseline, sweep, cell, margin))
        found += [finding for cost in _COSTS if (finding := _cost(baseline, sweep, cell, cost)) is not None]
    return found


def check_margin(margin: float, source: str) -> None:
    """`ValueError` for an experiment whose tolerance leaves no margin."""
    if not margin > 0:
        raise Refused(
            f"{source}: --mode bound needs a tolerance > 0 (how much worse than the baseline still passes, in the "
            f"metric's unit), got {margin:g}"
        )


def held(sweep: Sweep) -> list[Cell]:
    """The cells that must not get worse: all but two kinds that are there to be compared with.

    The averaging limit, and plain DDP where something mitigates its faults: nobody promises how bad that is.
    """
    systems = [cell for cell in cells(sweep) if cell.labels.get("mitigation") != AVERAGING_LIMIT]
    others = [run for cell in systems for run in cell.runs if run.trial.mitigations]
    mitigated = {plain.id for run in others if (plain := sweep.ddp(run)) is not None}
    return [cell for cell in systems if not (cell.runs[0].faulty and cell.runs[0].id in mitigated)]


def too_fine(sweep: Sweep, margin: float) -> list[str]:
    """Held cells in which a margin is less than what two sets of so many independent runs differ by, a line each."""
    lines = []
    for cell in held(sweep):
        tails = [tail for run in cell.runs if (tail := tail_of(run)) is not None]
        if len(tails) >= 3 and margin < (least := resolvable(stdev(tails), len(tails))):
            what = f"what {len(tails)} seeds can tell in {subject_of(cell)}"
            lines.append(
                f"tolerance {margin:g} is below {number(least)}, {what}: a harmless change that moves every run may be "
                "inconclusive; more seeds or a larger tolerance help"
            )
    return lines


def _quality(baseline: Baseline, sweep: Sweep, cell: Cell, margin: float) -> Finding:
    seeds, values = [], []
    broken: list[tuple[Seed, str]] = []
    unknown: list[tuple[Seed, str]] = []
    left_out: list[tuple[Seed, str]] = []
    for run in cell.runs:
        then = baseline.entry(run)
        absent, tail = unusable(run), tail_of(run)
        if absent is not None and absent.why == "unknown":
            unknown.append((run.sample, absent.reason))
        elif then.outcome in BROKE_DOWN or then.quality is None:
            left_out.append((run.sample, "broke down in the baseline already"))
        elif run.broke_down or tail is None:
            broken.append((run.sample, f"{broke(run)}, was {then.outcome}"))
            lost = worse_by(sweep, run, chance(sweep, run), then.quality)
            if isfinite(lost):
                seeds.append(run.sample)
                values.append(lost)
        elif spared := unharmed(run):
            unknown.append((run.sample, spared))
        elif run.found.metric.name != (metric := baseline.cells[cell_name(run)].metric):
            unknown.append((run.sample, f"is measured by {run.found.metric.name}, was by {metric}"))
        else:
            seeds.append(run.sample)
            values.append(worse_by(sweep, run, tail, then.quality))
    sample = SeedValues(
        seeds=tuple(seeds), values=tuple(values), broken=by_seed(broken), unknown=by_seed(unknown),
        left_out=by_seed(left_out),
    )  # fmt: skip
    bound = Bound(at_most=margin, called="tolerance")
    return finding_of(judge(sample, bound), cell, value="baseline quality", source="baseline", bound=bound.text)


def _cost(baseline: Baseline, sweep: Sweep, cell: Cell, cost: _BoundedCost) -> Finding | None:
    """The mean over seeds of now over then; None where neither has any of it."""
    seeds, ratios = [], []
    broken: list[tuple[Seed, str]] = []
    unknown: list[tuple[Seed, str]] = []
    for run in cell.runs:
        now, then = cost.now(sweep, run), cost.then(baseline.entry(run))
        if unusable(run) is not None or unharmed(run) or (then is not None and not isfinite(then)):
            continue
        if now is None or then is None:
            if cost.always and (now is not None or then is not None):
                unknown.append((run.sample, f"was measured {'now' if then is None else 'for the baseline'} only"))
        elif not isfinite(now) or then <= cost.least < now:
            broken.append((run.sample, f"has {number(now)}, the baseline {number(then)}"))
        elif then > cost.least:
            seeds.append(run.sample)
            ratios.append(now / then)
    if not (broken or unknown or ratios):
        return None
    sample = SeedValues(seeds=tuple(seeds), values=tuple(ratios), broken=by_seed(broken), unknown=by_seed(unknown))
    bound = Bound(at_most=cost.factor, called="")
    return finding_of(judge(sample, bound), cell, value=cost.value, source="baseline", bound=bound.text)
