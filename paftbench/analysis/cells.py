"""Cells: runs that differ in their seed alone, and what they say against golden and plain DDP."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import isfinite, nan
from typing import Any, Final, Literal

from paftbench.analysis.cost import step_seconds
from paftbench.analysis.quality import quality
from paftbench.analysis.runs import Run, Sweep, View
from paftbench.analysis.stats import ClaimKind, Summary, claim_of, summarise
from paftbench.errors import Refused
from paftbench.looks import find_look
from paftbench.records.roles import AVERAGING_LIMIT, DDP, GOLDEN
from paftbench.suggest import did_you_mean

NO_GAP: Final = "no gap"
UNRATED = frozenset({"missing", "error"})
_OF_A_RUN = ("seed", "fault_seed")


@dataclass(frozen=True, kw_only=True)
class Cell:
    """Runs of one cell; with `--by AXIS` all runs of one value of the axis."""

    grid: str
    labels: Mapping[str, Any]
    runs: tuple[Run, ...]
    apart: str = ""

    @cached_property
    def done(self) -> tuple[Run, ...]:
        return tuple(run for run in self.runs if run.result is not None)

    @property
    def seeds(self) -> int:
        """How many different seeds have finished."""
        return len({run.sample for run in self.done})

    @property
    def claim(self) -> ClaimKind:
        """What may be said of the judged metric: by the seeds that count, not by those that finished."""
        return claim_of(len({run.sample for run in self.done if run.broke_down or run.metric(run.judge) is not None}))

    @property
    def fault(self) -> tuple[str, str]:
        """The fault cell: what is left of grid and labels without the mitigation."""
        return self.grid, _key({axis: value for axis, value in self.labels.items() if axis != "mitigation"})

    @property
    def fault_text(self) -> str:
        """The labels but for the mitigation, each axis by the last part of its name."""
        others = {axis.rsplit(".", 1)[-1]: value for axis, value in self.labels.items() if axis != "mitigation"}
        return " ".join(f"{axis}={_short(value)}" for axis, value in others.items())

    @property
    def text(self) -> str:
        """The labels for people, the mitigation first, and what tells the cell apart from others of the same labels."""
        mitigation = self.labels.get("mitigation")
        parts = ("" if mitigation is None else str(mitigation), self.fault_text, self.apart)
        return " ".join(part for part in parts if part) or "all"

    def outcomes(self) -> dict[str, int]:
        """How many runs ended how, commonest first."""
        return dict(Counter(run.outcome for run in self.runs).most_common())

    def rated(self) -> tuple[Run, ...]:
        """The runs that count in a rate: finished, struck (or without faults), and not ended by an error of ours."""
        return tuple(run for run in self.done if run.outcome not in UNRATED and not run.unstruck)


def cells(sweep: Sweep, by: str | None = None) -> list[Cell]:
    """The cells of a sweep in the order of its names, or one per value of the axis `by`.

    `ValueError` names the known axes where no trial has `by`.
    """
    if by is not None:
        known = sorted({"grid"}.union(*(run.labels for run in sweep.selected)))
        if by not in known:
            raise Refused(f"no trial has the axis {by!r}{did_you_mean(by, known)}")
    groups: dict[tuple[str, str, str], list[Run]] = {}
    for run in sweep.selected:
        grid = run.grid if by in (None, "grid") else ""
        setting = run.setting + _key([own.fields for own in run.trial.mitigations]) if by is None else run.workload
        groups.setdefault((grid, _key(_labels(run, by)), setting), []).append(run)
    alike: dict[tuple[str, str], list[Run]] = {}
    for (grid, labels, _), runs in groups.items():
        alike.setdefault((grid, labels), []).append(runs[0])
    found = [
        Cell(
            grid=grid,
            labels=_labels(runs[0], by),
            runs=tuple(sorted(runs, key=lambda run: run.sample)),
            apart=_apart(runs[0], alike[grid, labels]),
        )
        for (grid, labels, _), runs in groups.items()
    ]
    return sorted(found, key=_place)


def _apart(run: Run, alike: Sequence[Run]) -> str:
    """The workload, and the fewest other fields of the trial, by which a run differs from those with its labels."""
    parts = [run.workload] if any(other.workload != run.workload for other in alike) else []
    rivals = [flat(other.trial.fields) for other in alike if other.workload == run.workload]
    own = flat(run.trial.fields)
    for key, value in own.items():
        same = [rival for rival in rivals if rival.get(key) == value]
        if len(same) < len(rivals) and key not in _OF_A_RUN:
            rivals = same
            parts.append(f"{key.rpartition('.')[2]}={_short(value)}")
    return " ".join(parts)


def flat(trial: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """A trial's fields by dotted path, those of faults and mitigations by their names, of namesakes by their place."""
    fields: dict[str, Any] = {}
    for key, value in trial.items():
        if isinstance(value, list) and value and all(isinstance(item, Mapping) for item in value):
            names = [item.get("name") for item in value]
            alone = all(isinstance(name, str) for name in names) and len(set(names)) == len(names)
            value = dict(zip(names if alone else map(str, range(len(names))), value, strict=True))
        fields |= flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {prefix + key: value}
    return fields


def _labels(run: Run, by: str | None) -> dict[str, Any]:
    return run.labels if by is None else _axis(run, by)


def _place(cell: Cell) -> tuple[Any, ...]:
    """Golden first, then by grid, fault labels as numbers, plain DDP, the mitigations, and the averaging limit."""
    mitigation = str(cell.labels.get("mitigation", ""))
    # By the label, not by its plugins: variants (`paft_sync_overlap`) stand together after the plugins' namesakes.
    order, stacked = find_look(mitigation).order, len(cell.runs[0].trial.mitigations)
    turn = {GOLDEN: 0, DDP: 1, AVERAGING_LIMIT: 3}.get(mitigation, 2)
    others = [value for axis, value in cell.labels.items() if axis != "mitigation"]
    numbers = [(value, "") if isinstance(value, int | float) else (0.0, str(value)) for value in others]
    return cell.grid != GOLDEN, cell.grid, numbers, turn, order, stacked, mitigation, cell.apart


def _axis(run: Run, by: str) -> dict[str, Any]:
    return {} if by == "grid" or by not in run.labels else {by: run.labels[by]}


def gap_closed(sweep: Sweep, run: Run, view: View) -> float | Literal["no gap"] | None:
    """(m - ddp) / (golden - ddp) of the same seed and fault; the sign of the metric's direction cancels.

    "no gap" where |golden - ddp| <= max(tolerance, golden's range over seeds). None where one of the three is missing
    or the run has no faults; NaN where golden broke down, and where chance is not known of one that did.
    """
    golden, ddp = sweep.golden(run), sweep.ddp(run)
    if not run.faulty or golden is None or ddp is None:
        return None
    own, best, worst = (quality(sweep, one, view) for one in (run, golden, ddp))
    if own is None or best is None or worst is None:
        return None
    if golden.broke_down or not all(map(isfinite, (own, best, worst))):
        return nan
    if abs(best - worst) <= max(float(run.planned.tolerance), spread(sweep.goldens(run), view)):
        return NO_GAP
    return (own - worst) / (best - worst) + 0.0  # -0 is 0


def gap_over(sweep: Sweep, runs: Sequence[Run], view: View) -> tuple[float | Literal["no gap"] | None, Summary]:
    """The mean of the gaps that there are, and its spread: of ratios, so that the interval is an approximate one."""
    values = {run: gap_closed(sweep, run, view) for run in runs}
    gaps = {run: value for run, value in values.items() if isinstance(value, float)}
    summary = summarise([run.sample for run in gaps], list(gaps.values()))
    if not gaps:
        return (NO_GAP if NO_GAP in values.values() else None), summary
    return summary.mean, summary


def spread(runs: Sequence[Run], view: View) -> float:
    """The range of a metric over the runs that did not break down; 0 for fewer than two."""
    measured = [run.metric(view) for run in runs if not run.broke_down]
    values = [value for value in measured if value is not None and isfinite(value)]
    return max(values) - min(values) if values else 0.0


def overhead(sweep: Sweep, run: Run) -> float | None:
    """Step time over that of plain DDP in the same sweep, synchronisations spread over the steps between them.

    None unless both are torchrun, a process per rank, and not exact.
    """
    ddp = sweep.ddp(run)
    if ddp is None or not (_timed(run) and _timed(ddp)):
        return None
    own, plain = step_seconds(run), step_seconds(ddp)
    return own / plain if own is not None and plain else None


def _timed(run: Run) -> bool:
    return run.found.time.overhead_valid is True and run.trial.placement == "torchrun" and not run.trial.exact


def _key(values: Any) -> str:
    return json.dumps(values, sort_keys=True)


def _short(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
