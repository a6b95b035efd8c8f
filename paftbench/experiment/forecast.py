"""What a trial is going to meet, before it runs: parameter patterns that match, strikes expected, warnings."""

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

from paftbench.errors import Refused
from paftbench.experiment.strikes import expected_strikes, layout_of
from paftbench.faults.schedules import Burst
from paftbench.mitigations.contract import Mitigation
from paftbench.ranks.sites import MEMORY_SITES, Site
from paftbench.records.outcome import FAILED
from paftbench.records.trial import DTYPES, Trial
from paftbench.store.directory import Planned, TrialRecord, find_trials, read_record


def check_faults(trial: Trial, where: str) -> None:
    """`ValueError` for a fault that cannot strike the precision, or that has nothing to strike: a pattern that matches
    no parameter, an optimizer without state.
    """
    dtype = DTYPES[trial.precision]
    for fault in trial.faults:
        if dtype not in fault.model.dtypes:
            raise Refused(f"{where}: fault {fault.name!r} cannot strike {trial.precision} gradients")
        if fault.site is Site.OPTIMIZER_STATE and not trial.optimizer.state_kinds:
            raise Refused(
                f"{where}: fault {fault.name!r}: site 'optimizer_state' needs an optimizer that keeps state, got "
                f"{trial.optimizer.name} with optimizer.momentum {trial.optimizer.momentum:g}"
            )
        if fault.parameters != "*":
            try:
                layout_of(trial.workload).select(fault.parameters)
            except ValueError as error:
                raise Refused(f"{where}: fault {fault.name!r}: {error}") from None


def warnings_of(planned: Iterable[Planned]) -> list[str]:
    """What is legal and probably not meant, one line per kind and cell; seeds do not repeat a line."""
    cells = {item.name.rpartition("/")[0]: item.trial for item in planned}
    return [f"{cell}: {text}" for cell, trial in cells.items() for text in dict.fromkeys(_warnings(trial))]


def _warnings(trial: Trial) -> Iterator[str]:
    for fault in trial.faults:
        strikes = expected_strikes(replace(trial, faults=(fault,)))
        if strikes < 1:
            yield f"fault {fault.name!r} expects {strikes:.3g} strikes, fewer than 1"
        if isinstance(fault.schedule, Burst) and fault.schedule.every > trial.steps:
            yield f"fault {fault.name!r}: a burst every {fault.schedule.every} steps, the trial has {trial.steps}"
    for mitigation in trial.mitigations:
        period = mitigation.steps_per_sync
        if period is not None and period > trial.steps:
            yield f"{mitigation.name}: period {period} is more than the trial's {trial.steps} steps"
    names = " and ".join(mitigation.name for mitigation in trial.mitigations)
    if names and not any(type(mitigation).on_step is not Mitigation.on_step for mitigation in trial.mitigations):
        for fault in trial.faults:
            if fault.site in MEMORY_SITES:
                yield f"fault {fault.name!r} strikes memory after the update, where {names} does nothing"
    cores = os.cpu_count() or 1
    if trial.placement == "torchrun" and trial.device == "cpu" and trial.processes > cores * trial.nodes:
        yield f"{trial.processes} processes on {cores} cores: step times say little"


class Forecast:
    """Seconds of trials to come, from those in a sweep directory that have finished.

    The median of trials that do the same work: all but faults, mitigations and seeds, in proportion to the steps.
    """

    def __init__(self, root: Path, known: Iterable[TrialRecord | None]) -> None:
        records = {record.path: record for record in known if record is not None}
        finished: dict[str, list[float]] = {}
        for directory in find_trials(root) if root.is_dir() else []:
            record = records.get(directory) or read_record(directory)
            result, trial = record.result, record.planned.trial
            if result is not None and result.time.total_s is not None and result.outcome not in FAILED:
                per_step = result.time.total_s / (result.stopped_at or trial.steps)
                finished.setdefault(_work(trial.fields), []).append(per_step)
        self._per_step = {work: median(values) for work, values in finished.items()}

    def seconds(self, trial: Trial) -> float | None:
        """The prediction for a resolved trial; `None` where none that does the same work has finished."""
        if not self._per_step:
            return None
        per_step = self._per_step.get(_work(trial.spec()))
        return None if per_step is None else per_step * trial.steps


def _work(trial: Mapping[str, Any]) -> str:
    ignored = ("faults", "mitigations", "seed", "fault_seed", "timeout_s", "steps", "lr_schedule")
    return json.dumps({key: value for key, value in trial.items() if key not in ignored}, sort_keys=True)
