"""What a sweep measured for a claim: one number per seed, its left side minus its right."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import isclose, isfinite, log10
from statistics import median
from typing import Any

from paftbench.analysis.cells import overhead
from paftbench.analysis.closed_form import closed_form
from paftbench.analysis.quality import quality
from paftbench.analysis.runs import Run, Sweep, View
from paftbench.errors import Refused
from paftbench.paper.claim import QUALITY, Claim, Where
from paftbench.paper.claims import PERIODS
from paftbench.records.seeds import Seed
from paftbench.theory import consensus_factor

VIEWS: tuple[View, ...] = ("rank0", "worst_rank", "mean_model")
LEAST_STEPS = 20  # before them the drift of few steps tells little


@dataclass(frozen=True, kw_only=True)
class Pair:
    """The two runs of a seed; a claim about one number has the same run twice."""

    seed: Seed
    left: Run
    right: Run


def pairs(sweep: Sweep, claim: Claim) -> list[Pair]:
    """The finished runs that a claim compares, by seed; `ValueError` where a seed has several."""
    where = claim.where
    versus = tuple((dict(where) | dict(claim.versus)).items())
    right = claim.right or claim.left
    # A golden run is shared by all fault seeds of its seed, so it is looked up from the run on the other side.
    if claim.left == "golden":
        rights = _by_seed(sweep, right, versus)
        return [Pair(seed=seed, left=own, right=run) for seed, run in rights.items() if (own := _golden(sweep, run))]
    lefts, rights = _by_seed(sweep, claim.left, where), _by_seed(sweep, right, versus)
    partner = {seed: Seed(seed.seed) if right == "golden" else seed for seed in lefts}
    return [
        Pair(seed=seed, left=run, right=rights[partner[seed]]) for seed, run in lefts.items() if partner[seed] in rights
    ]


def runs_of(sweep: Sweep, mitigation: str, where: Where = ()) -> list[Run]:
    """The finished runs of a mitigation label whose trials have the fields `where`, errors left out, by seed.

    Golden runs have no faults: fields of those are not asked of them.
    """
    if mitigation == "golden":
        where = tuple((path, value) for path, value in where if not path.startswith("faults."))
    found = [
        run
        for run in sweep.selected
        if run.mitigation == mitigation and run.result is not None and run.outcome != "error"
        if all(_is(field(run.trial.fields, path), value) for path, value in where)
    ]
    return sorted(found, key=lambda run: run.sample)


def field(trial: Mapping[str, Any], path: str) -> Any:
    """A field by its dotted path, faults and mitigations by their names; None where there is none."""
    value: Any = trial
    for part in path.split("."):
        if isinstance(value, list | tuple):
            value = next((item for item in value if item["name"] == part), None)
        else:
            value = value.get(part) if isinstance(value, Mapping) else None
    return value


def values(sweep: Sweep, claim: Claim) -> dict[View, dict[Seed, float]]:
    """One number per seed, for quality by each view of it, for all else the same by each."""
    found = pairs(sweep, claim)
    if claim.statistic in QUALITY:
        return {view: dict(_gains(sweep, found, claim, view)) for view in VIEWS}
    plain = dict(_plain(sweep, found, claim))
    return dict.fromkeys(VIEWS, plain)


def overhead_of(sweep: Sweep, run: Run) -> float | None:
    """Overhead over plain DDP in %."""
    ratio = overhead(sweep, run)
    return None if ratio is None else 100 * (ratio - 1)


def chosen(run: Run) -> tuple[list[int], list[float]]:
    """Completed steps at which a period was chosen, and the periods; of the syncs where no choice was logged."""
    rows = run.steps()
    decided = [(row.step + 1, float(row.decision.period)) for row in rows if row.decision]
    if not decided:
        decided = [(row.step + 1, float(row.period)) for row in rows if row.synced and row.period]
    return [step for step, _ in decided], [period for _, period in decided]


def constant(run: Run) -> float | None:
    """c of divergence^2 = c d sigma^2 D^2, the median over steps; None where no closed form applies.

    D^2 is the drift of `theory.drift`, for plain SGD the sum of eta^2 in Lemma 3.1.
    """
    form = closed_form(run)
    if form is None:
        return None
    rows = run.steps()
    ratios = [
        (row.divergence / expected) ** 2
        for row, expected in zip(rows, form[1], strict=True)
        if row.divergence is not None and isfinite(row.divergence) and row.step >= LEAST_STEPS
    ]
    return consensus_factor(run.trial.world_size) * median(ratios) if ratios else None


def _by_seed(sweep: Sweep, mitigation: str, where: Where) -> dict[Seed, Run]:
    found: dict[Seed, Run] = {}
    for run in runs_of(sweep, mitigation, where):
        if run.sample in found:
            first = found[run.sample].name
            raise Refused(f"{sweep.directory} has two trials of {mitigation}, seed {run.sample}: {first}, {run.name}")
        found[run.sample] = run
    return found


def _golden(sweep: Sweep, run: Run) -> Run | None:
    golden = sweep.golden(run)
    return golden if golden is not None and golden.result is not None and golden.outcome != "error" else None


def _gains(sweep: Sweep, found: list[Pair], claim: Claim, view: View) -> Iterator[tuple[Seed, float]]:
    scale = 100.0 if claim.statistic == "accuracy" else 1.0
    for pair in found:
        left, right = quality(sweep, pair.left, view), quality(sweep, pair.right, view)
        if left is not None and right is not None:
            yield pair.seed, scale * (right - left if claim.statistic == "loss" else left - right)


def _plain(sweep: Sweep, found: list[Pair], claim: Claim) -> Iterator[tuple[Seed, float]]:
    for pair in found:
        value = _number(sweep, pair, claim)
        if value is not None and isfinite(value):
            yield pair.seed, value


def _number(sweep: Sweep, pair: Pair, claim: Claim) -> float | None:
    if claim.statistic == "overhead":
        left, right = overhead(sweep, pair.left), overhead(sweep, pair.right)
        return None if left is None or right is None else 100 * (left - right)
    if claim.statistic == "period":
        periods = chosen(pair.left)[1]
        return median(periods) - sum(PERIODS) / 2 if periods else None
    if claim.statistic == "constant":
        own = constant(pair.left)
        return None if own is None else own - 1.0
    # Growth: the end against a quarter of the run. Degree: the ends of two runs. Both as powers of ten.
    ends = [_last(pair.left, 1.0), _last(pair.right, 1.0 if claim.statistic == "degree" else 0.25)]
    return log10(ends[0] / ends[1]) if ends[0] and ends[1] else None


def _last(run: Run, fraction: float) -> float | None:
    """The last finite divergence in the first `fraction` of the steps."""
    early = [row.divergence for row in run.steps() if row.step + 1 <= fraction * run.trial.steps]
    known = [value for value in early if value is not None and isfinite(value)]
    return float(known[-1]) if known else None


def _is(own: Any, value: Any) -> bool:
    both = isinstance(own, int | float) and isinstance(value, int | float)
    return isclose(own, value, rel_tol=1e-9) if both else own == value
