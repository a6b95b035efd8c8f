"""Flat rows: a mapping per trial, a mapping per step. None is what was not measured, NaN what was and is not a number.

A label axis is a column of its own name. Where the trial itself says something else under that name (golden runs
belong to the grid `golden`, and their axis `grid` says whose golden they are), the axis is `label.<name>`.
"""

from collections.abc import Iterator, Mapping, Sequence
from math import isnan
from typing import Any, Final

from paftbench.analysis.cells import gap_closed, overhead
from paftbench.analysis.quality import quality
from paftbench.analysis.runs import VIEWS, Run, Sweep
from paftbench.printable import unicode

Row = dict[str, Any]
LAST_KEY: Final = "seed"  # the columns up to this one say which trial a row is of, per step as well
TEXT: Final = frozenset(  # columns that are text also where no row has a value
    {"reason", "metric", "direction", "gap", "golden_id", "fault", "site", "unit", "size", "data", "decision.layer"}
)
_NONE = ("decision", None)  # most steps choose no period, and a decision has several columns


def trial_rows(sweep: Sweep) -> Iterator[Row]:
    """A row per trial, in the order of the table; one that is not done has the outcome `missing`."""
    unknown = _unknown(sweep.selected)
    for run in sweep.selected:
        own = {**unknown, **keys(run)}
        yield {**own, **_faults(run), **_settings(run), **_outcome(sweep, run), **_measured(run), **_origin(run)}


def step_rows(runs: Sequence[Run], per_rank: bool = False) -> Iterator[Row]:
    """A row per step of each run; `per_rank` adds every rank's loss as `loss_<rank>`."""
    unknown = _unknown(runs)
    for run in runs:
        own = {**unknown, **keys(run)}
        for step, row in run.step_rows():
            losses = step.loss
            ranks = {f"loss_{rank}": loss for rank, loss in enumerate(losses)} if per_rank else {}
            views = {"loss_mean": sum(losses) / len(losses), "loss_worst": _worst(losses), "loss_rank0": losses[0]}
            rest = {key: value for key, value in row.items() if key not in ("step", "loss") and (key, value) != _NONE}
            yield {**own, "step": step.step, **views, **ranks, **_flat(rest)}


def _unknown(runs: Sequence[Run]) -> Row:
    """Every key column of the runs, without values: rows share their columns and their order."""
    names = dict.fromkeys(name for run in runs for name in keys(run) if name != LAST_KEY)
    return {**dict.fromkeys(names), LAST_KEY: None}


def keys(run: Run) -> Row:
    """Which trial: its id, names, axes and seed."""
    first = {"id": run.id, "name": run.name, "experiment": run.planned.experiment, "grid": run.grid}
    first["mitigation"] = run.mitigation
    said = {**_settings(run), **first}
    axes = {axis: value for axis, value in run.labels.items() if axis not in said}
    axes |= {f"label.{axis}": value for axis, value in run.labels.items() if axis in said and said[axis] != value}
    return {**first, **axes, LAST_KEY: run.seed}


def _settings(run: Run) -> Row:
    trial = run.trial
    fields = ("world_size", "batch_per_rank", "steps", "precision", "placement", "procs", "exact", "device")
    return {
        "fault_seed": trial.fault_seed,
        "workload": run.workload,
        "size": trial.workload.size,
        "data": trial.workload.data,
        **{key: getattr(trial, key) for key in fields},
        "optimizer": trial.optimizer.name,
        "lr": trial.optimizer.lr,
    }


def _faults(run: Run) -> Row:
    """The faults' models and sites, and the swept fault's degree: where several have one and none is an axis, None."""
    faults = run.trial.faults
    swept = [fault for fault in faults if f"faults.{fault.name}.degree" in run.labels] or faults
    only = swept[0] if len(swept) == 1 else None
    return {
        "fault": "+".join(fault.model for fault in faults) or None,
        "site": "+".join(dict.fromkeys(str(fault.site) for fault in faults)) or None,
        "degree": only and only.degree,
        "unit": only and only.unit,
    }


def _outcome(sweep: Sweep, run: Run) -> Row:
    found, closed = run.found, gap_closed(sweep, run, run.judge)
    number = closed if isinstance(closed, float) else None
    gap = closed if number is None else "undefined" if isnan(number) else "open"
    return {
        "outcome": run.outcome,
        "reason": None if found.reason is None else unicode(found.reason),
        "stopped_after": found.stopped_at,  # pandas takes columns that end in _at for dates
        "bitwise_identical": found.bitwise_identical,
        "judge": run.judge,
        "tolerance": run.planned.tolerance,
        "metric": found.metric.name,
        **{key: getattr(found.metric, key) for key in ("direction", "chance", "untrained", "examples")},
        **{view: quality(sweep, run, view) for view in VIEWS},
        "gap_closed": number,
        "gap": gap,
        "overhead": overhead(sweep, run),
    }


def _measured(run: Run) -> Row:
    found, did, time = run.found, run.found.mitigation, run.found.time
    row: Row = {}
    for name in ("divergence", "inconsistency", "nsr", "strikes"):
        row |= {f"{name}_{part}": value for part, value in vars(getattr(found, name)).items()}
    row |= {"syncs": did.syncs, "periods": None if did.periods is None else list(did.periods)}
    row |= {"memory_bytes": did.memory_bytes, "extra_bytes": did.bytes, "extra_collectives": did.collectives}
    row |= {"gradient_bytes": found.gradient_bytes, "parameters": found.parameters}
    row |= {key: getattr(time, key) for key in ("step_median_s", "step_max_s", "total_s", "overhead_valid")}
    return row | _flat({"seconds": time.sections})


def _origin(run: Run) -> Row:
    environment = run.found.environment
    return {
        "golden_id": run.planned.golden_id, "torch": environment.version("torch"), "python": environment.python,
        "platform": environment.platform, "processor": environment.processor_name,
        "cpu_capability": environment.cpu_capability, "cpus": environment.cpus,
        "commit": environment.git and environment.git.sha,
    }  # fmt: skip


def _flat(row: Mapping[str, Any]) -> Row:
    """The row with mappings inside it spread over columns `<key>.<part>`."""
    flat: Row = {}
    for key, value in row.items():
        if isinstance(value, Mapping):
            flat |= {f"{key}.{part}": item for part, item in value.items()}
        else:
            flat[key] = value
    return flat


def _worst(losses: Sequence[float]) -> float:
    return next((loss for loss in losses if isnan(loss)), max(losses))
