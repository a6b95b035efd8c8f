"""What a sweep could have found: the smallest effect that its seeds would show, and of how many examples."""

from collections.abc import Sequence

from paftbench.analysis.quality import quality_lost
from paftbench.analysis.runs import Run, Sweep, View
from paftbench.analysis.stats import detectable
from paftbench.records.roles import DDP, GOLDEN
from paftbench.records.seeds import Seed


def detectable_of(sweep: Sweep, runs: Sequence[Run], view: View) -> dict[str, float | None]:
    """Of the runs of a cell, each against golden and against plain DDP of its own seed; None where that is itself."""
    own = {
        GOLDEN: [(run, sweep.golden(run)) for run in runs if not run.golden],
        DDP: [(run, sweep.ddp(run)) for run in runs if run.trial.mitigations],
    }
    return {name: _detectable(sweep, pairs, view) for name, pairs in own.items()}


def _detectable(sweep: Sweep, pairs: Sequence[tuple[Run, Run | None]], view: View) -> float | None:
    by_seed: dict[Seed, list[float]] = {}
    for run, other in pairs:
        if other is not None and (lost := quality_lost(sweep, run, other, view)) is not None:
            by_seed.setdefault(run.sample, []).append(lost)
    return detectable([sum(group) / len(group) for group in by_seed.values()])


def examples_of(runs: Sequence[Run]) -> int | None:
    """How many examples an evaluation has; None for records that do not say, and for runs that differ."""
    known = [count for run in runs if (count := run.found.metric.examples) is not None]
    return known[0] if known and known.count(known[0]) == len(known) else None
