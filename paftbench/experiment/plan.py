"""From an experiment to the trials of its sweep: golden runs, cells, clean runs, averaging limits."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from paftbench.config import Trial, parse_trial
from paftbench.experiment.cells import Cell, Choices, cells_of, name_of, overridden
from paftbench.experiment.file import Experiment
from paftbench.experiment.forecast import check_faults
from paftbench.experiment.overrides import parse_override
from paftbench.mitigations.contract import Mitigation
from paftbench.plugins import build_named, source_sha256
from paftbench.store import Label, Planned
from paftbench.workloads.contract import DataId, Workload

_FAULTS = frozenset({"faults", "fault_seed"})
_MITIGATIONS = frozenset({"mitigations"})
Pairs = Sequence[tuple[Cell, Trial]]


def plan(experiment: Experiment, overrides: Sequence[str] = (), *, plugins: Sequence[Path] = ()) -> list[Planned]:
    """Every trial of the sweep, validated, golden runs first; trials of equal id once.

    `plugins` are the files of `--plugin`, registered already. `ValueError` or `LookupError` of one line, also for
    data that is not there.
    """
    parsed = [parse_override(text) for text in overrides]
    experiment, fixed = overridden(experiment, parsed, list(Trial.__dataclass_fields__))
    identities = _Identities("cuda" if torch.cuda.is_available() else "cpu")
    cells = [(cell, _trial(cell, experiment, identities.device)) for cell in cells_of(experiment, fixed)]
    pairs = [(cell, replace(trial, seed=seed)) for cell, trial in cells for seed in cell.seeds]
    drafts = list(_drafts(experiment, pairs))
    planned: dict[str, Planned] = {}
    for draft in drafts:
        trial = identities.resolved(draft.trial)
        data = identities.data(trial.workload)
        golden = identities.id(_golden(draft.trial)) if experiment.golden else None
        own = trial.id(data)
        planned.setdefault(
            own,
            Planned(
                id=own,
                name=draft.name,
                experiment=experiment.name,
                grid=draft.grid,
                labels=draft.labels,
                golden_id=golden if golden != own else None,
                judge=experiment.judge,
                tolerance=experiment.tolerance,
                plugins=tuple(str(path.resolve()) for path in plugins),
                sources=_sources(trial),
                data=data,
                trial=trial,
            ),
        )
    return list(planned.values())


@dataclass(frozen=True, kw_only=True)
class _Draft:
    grid: str
    name: str
    labels: dict[str, Label]
    trial: Trial


class _Identities:
    """Resolved trials and their ids; the data of a workload is fingerprinted once."""

    def __init__(self, device: str) -> None:
        self.device = device
        self._data: dict[Workload, DataId] = {}

    def data(self, workload: Workload) -> DataId:
        if workload not in self._data:
            self._data[workload] = workload.data_id()
        return self._data[workload]

    def resolved(self, trial: Trial) -> Trial:
        return trial.resolved(device="cuda" if self.device == "cuda" else "cpu")

    def id(self, trial: Trial) -> str:
        return self.resolved(trial).id(self.data(trial.workload))


def _trial(cell: Cell, experiment: Experiment, device: str) -> Trial:
    where = f"{experiment.source}: {cell.grid}"
    trial = parse_trial(cell.spec, where)
    if trial.device == "cuda" and device != "cuda":
        raise ValueError(f"{where}: device cuda is asked for, but torch sees no GPU")
    check_faults(trial, where)
    return trial


def _drafts(experiment: Experiment, pairs: Pairs) -> Iterator[_Draft]:
    """Golden runs first: where two drafts turn out to be the same trial, the first gives the name."""
    if experiment.golden:
        yield from _shared("golden", pairs, _golden, _FAULTS | _MITIGATIONS)
    for cell, trial in pairs:
        yield _Draft(
            grid=cell.grid,
            name=name_of(cell.grid, cell.choices, trial.seed),
            labels={axis.name: label for axis, label in cell.choices},
            trial=trial,
        )
    if experiment.clean:
        yield from _shared("clean", pairs, _clean, _FAULTS)
    if experiment.averaging_limit:
        regather: Mitigation = build_named("mitigations", {"name": "regather"}, "averaging_limit")
        for cell, trial in pairs:
            if trial.faults:
                choices = cell.choices_beside(_MITIGATIONS)
                yield _Draft(
                    grid=cell.grid,
                    name=name_of(cell.grid, choices, trial.seed, first=("averaging_limit",)),
                    labels=_labels("averaging_limit", choices),
                    trial=replace(trial, mitigations=(regather,)),
                )


def _golden(trial: Trial) -> Trial:
    return replace(trial, faults=(), mitigations=(), fault_seed=None)


def _clean(trial: Trial) -> Trial:
    return replace(trial, faults=(), fault_seed=None)


def _shared(kind: str, pairs: Pairs, change: Callable[[Trial], Trial], dropped: frozenset[str]) -> Iterator[_Draft]:
    """Trials that several cells share. Where grids differ in more than faults, each names the first grid it serves."""
    settings: dict[Trial, tuple[Cell, Choices]] = {}
    names: dict[str, set[Trial]] = {}
    for cell, trial in pairs:
        setting = replace(change(trial), seed=0)
        settings.setdefault(setting, (cell, cell.choices_beside(dropped)))
        names.setdefault(name_of(kind, settings[setting][1], 0), set()).add(setting)
    seen = set()
    for _, trial in pairs:
        changed = change(trial)
        cell, choices = settings[replace(changed, seed=0)]
        if changed not in seen:
            seen.add(changed)
            ambiguous = len(names[name_of(kind, choices, 0)]) > 1
            labels = _labels(kind, choices) if kind == "golden" else {axis.name: label for axis, label in choices}
            yield _Draft(
                grid=kind,
                name=name_of(kind, choices, trial.seed, first=(cell.grid,) if ambiguous else ()),
                labels={**labels, "grid": cell.grid} if ambiguous else labels,
                trial=changed,
            )


def _labels(mitigation: str, choices: Choices) -> dict[str, Label]:
    labels: dict[str, Label] = {"mitigation": mitigation}
    for axis, label in choices:
        labels[axis.name] = f"{mitigation} {label}" if axis.name == "mitigation" else label
    return labels


def _sources(trial: Trial) -> dict[str, str]:
    plugins: list[Any] = [trial.workload, *(fault.model for fault in trial.faults), *trial.mitigations]
    return {plugin.name: source_sha256(plugin) for plugin in plugins}
