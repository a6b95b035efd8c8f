"""Everything that `check` judges, from a sweep that has run; and the sweep as the experiment has it now."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from paftbench.analysis.runs import Run, Sweep
from paftbench.gate.baseline import Baseline
from paftbench.gate.bound import compare_bounds
from paftbench.gate.exact import compare_bits
from paftbench.gate.expectations import judge_expectations, judge_trials
from paftbench.gate.finding import Finding
from paftbench.gate.selecting import Selected
from paftbench.records.outcome import Facts, outcome_of
from paftbench.store.directory import TrialRecord

Mode = Literal["bound", "exact"]
_BY_TOLERANCE = ("masked", "degraded", "failed_to_learn")  # outcomes that judge and tolerance decide


def sweep_of(root: Path, plans: Sequence[Mapping[str, Any]], results: Mapping[str, Mapping[str, Any]]) -> Sweep:
    """Trials as they are planned now, with the results that there are of them, by id.

    Results of other trials in the directory do not count; outcomes are by the present judge and tolerance.
    """
    runs = []
    for plan in plans:
        own: dict[str, Any] = json.loads(json.dumps(plan))
        result = results.get(own["id"])
        record = TrialRecord(path=root / own["id"], planned=own, result=None if result is None else {**result})
        runs.append(Run(record=record))
    sweep = Sweep(directory=root, selected=tuple(runs), everything=tuple(runs))
    for run in runs:
        _judge_again(run, sweep)
    return sweep


def judged(
    sweep: Sweep, selected: Sequence[Selected], baseline: Baseline | None, mode: Mode, margin: float
) -> list[Finding]:
    """Trials that failed first, then the experiment's expectations, then the comparison with the baseline."""
    found = [*judge_trials(sweep), *judge_expectations(selected, sweep)]
    if baseline is not None:
        found += compare_bits(baseline, sweep) if mode == "exact" else compare_bounds(baseline, sweep, margin)
    return found


def _judge_again(run: Run, sweep: Sweep) -> None:
    """The outcome by the experiment as it is now, which may have been edited since the trial ran."""
    result, golden = run.record.result, sweep.golden(run)
    if result is None or result.get("outcome") not in _BY_TOLERANCE or not result.get("history", {}).get(run.judge):
        return
    metric = result["metric"]
    facts = Facts(
        nonfinite=False, judged=metric[run.judge], chance=metric["chance"], untrained=result["history"][run.judge][0],
        golden=None if golden is None or golden is run else golden.metric(run.judge),
        direction=metric["direction"], tolerance=float(run.planned["tolerance"]),
    )  # fmt: skip
    result["outcome"] = outcome_of(facts)
