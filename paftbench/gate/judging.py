"""Everything that `check` judges, from a sweep that has run; and the sweep as the experiment has it now."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

from paftbench.analysis.runs import Run, Sweep
from paftbench.gate.baseline import Baseline
from paftbench.gate.bound import compare_bounds
from paftbench.gate.exact import compare_bits
from paftbench.gate.expectations import judge_expectations, judge_trials
from paftbench.gate.finding import Finding
from paftbench.gate.selecting import Selected
from paftbench.records.outcome import Facts, outcome_of
from paftbench.records.plan import Plan
from paftbench.records.result import Result
from paftbench.store.directory import TrialRecord

Mode = Literal["bound", "exact"]
_BY_TOLERANCE = ("masked", "degraded", "failed_to_learn")  # outcomes that judge and tolerance decide


def sweep_of(root: Path, plans: Sequence[Plan], results: Mapping[str, Result]) -> Sweep:
    """Trials as they are planned now, with the results that there are of them, by id.

    Results of other trials in the directory do not count; outcomes are by the present judge and tolerance.
    """
    known = {plan.id: results.get(plan.id) for plan in plans}
    runs = []
    for plan in plans:
        result = known[plan.id]
        if result is not None:
            result = _judged_again(plan, result, known.get(plan.golden_id or ""))
        runs.append(Run(record=TrialRecord(path=root / plan.id, planned=plan, result=result)))
    return Sweep(directory=root, selected=tuple(runs), everything=tuple(runs))


def judged(
    sweep: Sweep, selected: Sequence[Selected], baseline: Baseline | None, mode: Mode, margin: float
) -> list[Finding]:
    """Trials that failed first, then the experiment's expectations, then the comparison with the baseline."""
    found = [*judge_trials(sweep), *judge_expectations(selected, sweep)]
    if baseline is not None:
        found += compare_bits(baseline, sweep) if mode == "exact" else compare_bounds(baseline, sweep, margin)
    return found


def _judged_again(plan: Plan, result: Result, golden: Result | None) -> Result:
    """With the outcome by the experiment as it is now, which may have been edited since the trial ran."""
    metric, course = result.metric, result.history.of(plan.judge)
    own = metric.of(plan.judge)
    if result.outcome not in _BY_TOLERANCE or not course or own is None or metric.chance is None:
        return result
    facts = Facts(
        nonfinite=False, judged=own, chance=metric.chance, untrained=course[0],
        golden=None if golden is None else golden.metric.of(plan.judge), direction=metric.direction or "max",
        tolerance=float(plan.tolerance),
    )  # fmt: skip
    return replace(result, outcome=outcome_of(facts))
