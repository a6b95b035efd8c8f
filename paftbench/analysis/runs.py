"""Trials as analysis sees them, and which trial is whose golden run and whose plain DDP."""

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from paftbench.errors import Refused
from paftbench.records.injection import InjectionRow
from paftbench.records.outcome import BROKE_DOWN
from paftbench.records.plan import VIEWS, Plan, TrialFields
from paftbench.records.plan import Judge as View
from paftbench.records.result import Metric, Result, unmeasured
from paftbench.records.roles import DDP, GOLDEN, LIMIT_MITIGATION
from paftbench.records.seeds import Seed, parse_seed
from paftbench.records.step import StepRow
from paftbench.store.directory import TRIAL, TrialRecord, read_record, read_results

__all__ = ["VIEWS", "Run", "Sweep", "View", "load"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Run:
    """One trial: what it was planned to be, and what came out once it is done."""

    record: TrialRecord

    @property
    def planned(self) -> Plan:
        return self.record.planned

    @property
    def result(self) -> Result | None:
        """None while the trial is not done."""
        return self.record.result

    @cached_property
    def found(self) -> Result:
        """The result, or one in which nothing was measured and whose outcome is `missing`."""
        return self.result or unmeasured(self.planned, "missing")

    @property
    def id(self) -> str:
        return self.record.id

    @property
    def name(self) -> str:
        return self.planned.name

    @property
    def trial(self) -> TrialFields:
        """The resolved fields of the trial."""
        return self.planned.trial

    @property
    def seed(self) -> int:
        return self.trial.seed

    @cached_property
    def sample(self) -> Seed:
        """Which run of its cell it is, by its name: its seed, beside it the faults' where seeds are listed in pairs."""
        return parse_seed(self.name.rpartition("/s")[2]) or Seed(self.seed)

    @property
    def grid(self) -> str:
        return self.planned.grid

    @cached_property
    def labels(self) -> dict[str, Any]:
        """Axis values without the seed."""
        return {axis: value for axis, value in self.planned.labels.items() if axis != "seed"}

    @property
    def judge(self) -> View:
        return self.planned.judge

    @property
    def mitigation(self) -> str:
        """What the trial is called in legends: its mitigation label, or what it runs."""
        names = "+".join(mitigation.name for mitigation in self.trial.mitigations)
        return str(self.labels.get("mitigation") or names or (DDP if self.faulty else GOLDEN))

    @property
    def workload(self) -> str:
        return self.trial.workload.name

    @cached_property
    def workload_text(self) -> str:
        """The whole workload, to tell it from others."""
        return json.dumps(self.trial.workload.fields, sort_keys=True)

    @cached_property
    def setting(self) -> str:
        """What the runs of a cell share: everything but seeds and mitigations."""
        return _text_without(self.trial.fields, "mitigations", "seed", "fault_seed")

    @cached_property
    def same_but_mitigations(self) -> str:
        """What a run shares with those it is compared with: everything but mitigations."""
        return _text_without(self.trial.fields, "mitigations")

    @cached_property
    def place(self) -> tuple[str, Seed, bool, str]:
        """Where a run stands in its grid: its seeds, and its labels but for the mitigation."""
        return self.grid, self.sample, self.faulty, _text_without(self.labels, "mitigation")

    @property
    def faulty(self) -> bool:
        return bool(self.trial.faults)

    @property
    def unstruck(self) -> bool:
        """Faults, and no strike drawn: valid, but in no rate."""
        return self.faulty and self.found.strikes.drawn == 0

    @property
    def golden(self) -> bool:
        """No faults and no mitigations."""
        return not self.trial.faults and not self.trial.mitigations

    @property
    def outcome(self) -> str:
        """The outcome; `missing` while not done, `no strike` for faults that had a whole run to strike and did not."""
        outcome = self.found.outcome
        return "no strike" if self.unstruck and outcome not in ("error", "hung") else outcome

    @property
    def broke_down(self) -> bool:
        """Ended nonfinite, crashed or hung, also where no strike is known of."""
        return self.found.outcome in BROKE_DOWN

    def metric(self, view: View) -> float | None:
        """What was measured; `analysis.quality` says what a run that broke down counts as."""
        return self.found.metric.of(view)

    def steps(self) -> list[StepRow]:
        """Rows of steps.jsonl; a step that a resumed trial ran again counts once, the last time."""
        return list({row.step: row for row in self.record.steps()}.values())

    def step_rows(self) -> list[tuple[StepRow, Mapping[str, Any]]]:
        """The same, each beside all that stands in its row."""
        return list({row.step: (row, fields) for row, fields in self.record.step_rows()}.values())

    def injections(self) -> Iterator[InjectionRow]:
        """Rows of injections.jsonl."""
        return self.record.injections()


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """The trials that were asked for, and beside them all that they are compared with."""

    directory: Path
    selected: tuple[Run, ...]
    everything: tuple[Run, ...]

    @cached_property
    def _by_id(self) -> dict[str, Run]:
        return {run.id: run for run in self.everything}

    @cached_property
    def _plain(self) -> dict[str, Run]:
        return {run.same_but_mitigations: run for run in self.everything if not run.trial.mitigations}

    @cached_property
    def _plain_by_place(self) -> dict[tuple[str, Seed, bool, str], Run]:
        return {run.place: run for run in reversed(self._plain.values())}

    @cached_property
    def _goldens(self) -> dict[str, list[Run]]:
        return _by_setting(run for run in self.everything if run.golden)

    @cached_property
    def _limits(self) -> dict[str, list[Run]]:
        alone = [LIMIT_MITIGATION]
        return _by_setting(r for r in self.everything if [m.name for m in r.trial.mitigations] == alone)

    @cached_property
    def metrics(self) -> dict[str, Metric]:
        """What its runs say of a workload's metric, chance above all: a process that ended could not write it."""
        known = (run for run in reversed(self.everything) if run.found.metric.direction is not None)
        return {run.workload_text: run.found.metric for run in known}

    def metric(self, run: Run) -> Metric:
        """What is known of a run's metric; nothing where no run of its workload says it."""
        return self.metrics.get(run.workload_text, Metric())

    def golden(self, run: Run) -> Run | None:
        """The golden run of the same seed; a golden run is its own."""
        return run if run.golden else self._by_id.get(run.planned.golden_id or "")

    def ddp(self, run: Run) -> Run | None:
        """The trial of the same seed and faults without mitigations; for a trial without any, itself.

        It is the same trial but for its mitigations; where a mitigation label also sets other fields, it is the one
        whose other labels are equal.
        """
        return self._plain.get(run.same_but_mitigations) or self._plain_by_place.get(run.place)

    def goldens(self, run: Run) -> list[Run]:
        """The golden runs of every seed of the run's setting."""
        own = self.golden(run)
        if own is None:
            return []
        return self._goldens.get(own.setting, [])

    def limits(self, run: Run) -> list[Run]:
        """The averaging limit of every seed of the run's setting: `regather` and nothing else."""
        return self._limits.get(run.setting, [])


def load(directory: Path) -> Sweep:
    """The trials of a sweep directory, or one trial directory among its siblings.

    `ValueError` for another schema or where nothing has finished, `LookupError` where there are no trials.
    """
    selected = tuple(Run(record=record) for record in read_results(directory))
    everything = selected
    if (directory / TRIAL).is_file():
        everything = (*selected, *_siblings(directory.resolve()))
    if all(run.result is None for run in selected):
        raise Refused(f"nothing has finished in {directory} yet: {len(selected)} planned trials, no result.json")
    return Sweep(directory=directory, selected=selected, everything=everything)


def _siblings(directory: Path) -> Iterator[Run]:
    """The other trials beside one; what cannot be read there is no business of a trial that can."""
    for path in sorted(directory.parent.glob(f"*/{TRIAL}")):
        if path.parent != directory:
            with suppress(ValueError, LookupError):
                yield Run(record=read_record(path.parent))


def samples_of(runs: Iterable[Run]) -> list[Seed]:
    """The different samples of runs that have faults, in order; of all of them where none has.

    Golden and clean runs have no faults, and one run for all fault seeds of a seed.
    """
    runs = list(runs)
    return sorted({run.sample for run in runs if run.faulty} or {run.sample for run in runs})


def _by_setting(runs: Iterable[Run]) -> dict[str, list[Run]]:
    groups: dict[str, list[Run]] = {}
    for run in runs:
        groups.setdefault(run.setting, []).append(run)
    return groups


def _text_without(mapping: Mapping[str, Any], *keys: str) -> str:
    return json.dumps({key: value for key, value in mapping.items() if key not in keys}, sort_keys=True)
