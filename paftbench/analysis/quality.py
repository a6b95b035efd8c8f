"""The quality of a run at its end, counted one way wherever a mean of qualities is shown or decided on.

A run that broke down (nonfinite, crashed, hung) has no quality. It counts as the metric's chance, what a model that
knows nothing reaches, whatever its last evaluation happened to give: accuracy of a NaN model is 0, its loss NaN, and
another rank's may look sound. `docs/reading.md` says so to readers.
"""

from math import isfinite, nan

from paftbench.analysis.runs import Run, Sweep, View


def quality(sweep: Sweep, run: Run, view: View) -> float | None:
    """What a run counts as in a mean; NaN where that is chance and no run of its workload says what chance is.

    None where there is nothing to count: not finished, ended in an error of ours, not evaluated.
    """
    if run.found.outcome in ("missing", "error"):
        return None
    value = run.metric(view)
    if run.broke_down or (value is not None and not isfinite(value)):
        return chance(sweep, run)
    return value


def chance(sweep: Sweep, run: Run) -> float:
    """What a model that knows nothing reaches; NaN where no run of the workload says it."""
    known = sweep.metric(run).chance
    return nan if known is None else float(known)


def quality_lost(sweep: Sweep, run: Run, than: Run, view: View) -> float | None:
    """How much worse a run is than another, in the metric's unit; None where one has no quality."""
    own, best = quality(sweep, run, view), quality(sweep, than, view)
    return None if own is None or best is None else worse_by(sweep, run, own, best)


def worse_by(sweep: Sweep, run: Run, own: float, than: float) -> float:
    """How much worse one value of a run's metric is than another."""
    smaller_is_better = sweep.metric(run).direction == "min"
    return (own - than if smaller_is_better else than - own) + 0.0  # -0 is 0


def broken(runs: tuple[Run, ...]) -> int:
    """How many runs broke down: shown beside every mean that counts them."""
    return sum(run.broke_down for run in runs)
