"""What a sweep is, in a few lines."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from paftbench.analysis.cells import cells
from paftbench.analysis.runs import Run, Sweep, samples_of
from paftbench.analysis.stats import INTERVAL

# From harmless to worst, then what is not known.
OUTCOMES = (
    "masked", "degraded", "failed_to_learn", "nonfinite", "crashed", "hung", "error", "no strike", "missing",
)  # fmt: skip
MEANINGS = {
    "masked": "no worse than the golden run of the same seed by more than the tolerance",
    "degraded": "worse than that",
    "failed_to_learn": "no better than chance or than the untrained model",
    "nonfinite": "NaN or infinity in the last loss or in a parameter of any rank",
    "crashed": "the process ended by an exception or a signal after a strike",
    "hung": "no step for too long",
    "error": "a failure of the benchmark or of the machine: the trial says nothing",
    "no strike": "there were faults and none of them struck: valid, in no rate",
    "missing": "not finished",
}
_CLAIMS = {
    "none": "fewer than 3 seeds: numbers, no claim",
    "range": "3 or 4 seeds: every point and the range",
    "interval": f"5 or more seeds: a {INTERVAL} interval",
}


@dataclass(frozen=True, kw_only=True)
class PageSummary:
    """`outcomes` are (outcome, trials, meaning); `facts` are (what, value)."""

    title: str
    about: str
    outcomes: Sequence[tuple[str, int, str]]
    facts: Sequence[tuple[str, str]]


def summary(sweep: Sweep, about: str) -> PageSummary:
    """Names, counts, and what the trials have in common."""
    runs = sweep.selected
    counts = outcome_counts(runs)
    return PageSummary(
        title=joined(run.planned.experiment for run in runs),
        about=about,
        outcomes=[(name, count, MEANINGS.get(name, "")) for name, count in counts.items()],
        facts=[(name, value) for name, value in _facts(sweep).items() if value],
    )


def outcome_counts(runs: Sequence[Run]) -> dict[str, int]:
    """Trials by outcome, from masked to missing."""
    counts = Counter(run.outcome for run in runs)
    return {name: counts[name] for name in (*OUTCOMES, *sorted(counts.keys() - {*OUTCOMES})) if counts[name]}


def joined(values: Iterable[Any]) -> str:
    """Different values in the order of their first appearance."""
    return ", ".join(dict.fromkeys(str(value) for value in values))


def _facts(sweep: Sweep) -> Mapping[str, str]:
    runs = sweep.selected
    done = [run for run in runs if run.result is not None]
    seeds = samples_of(runs)
    found = cells(sweep)
    claims = {cell.claim for cell in found if cell.done}
    return {
        "trials": str(len(runs)) if len(done) == len(runs) else f"{len(done)} of {len(runs)} finished",
        "workload": joined(_workload(run) for run in runs),
        "faults": joined(fault.model for run in runs for fault in run.trial.faults) or "none",
        "mitigations": joined(cell.runs[0].mitigation for cell in found if not cell.runs[0].golden) or "none",
        "seeds": f"{len(seeds)} ({', '.join(map(str, seeds))}); "
        + "; ".join(text for claim, text in _CLAIMS.items() if claim in claims),
        "judged by": joined(f"{run.judge} {run.found.metric.name or ''}".strip() for run in done),
        "tolerance": joined(f"{run.planned.tolerance:g}" for run in runs),
        "ranks": joined(run.trial.world_size for run in runs),
        "steps": joined(run.trial.steps for run in runs),
        "optimizer": joined(run.trial.optimizer.name for run in runs),
        "placement": joined(_placement(run) for run in runs),
        "time of all trials": _duration(sum(run.found.time.total_s or 0.0 for run in runs)),
    }


def _workload(run: Run) -> str:
    workload = run.trial.workload
    data = f" on {workload.data}" if workload.data else ""
    return f"{workload.name} {'' if workload.size is None else workload.size}".strip() + data


def _placement(run: Run) -> str:
    trial = run.trial
    parts = [trial.placement, trial.device, trial.precision, "exact" if trial.exact else ""]
    return " ".join(str(part) for part in parts if part)


def _duration(seconds: float) -> str:
    return (
        f"{seconds:.0f} s"
        if seconds < 120
        else f"{seconds / 60:.0f} min"
        if seconds < 7200
        else f"{seconds / 3600:.1f} h"
    )
