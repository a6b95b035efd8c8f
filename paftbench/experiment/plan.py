"""From an experiment to the trials of its sweep: golden runs, cells, clean runs, averaging limits."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import torch

from paftbench.errors import Missing, Refused
from paftbench.experiment.cells import Choices, Combination, cells_of, name_of, overridden
from paftbench.experiment.file import Experiment
from paftbench.experiment.forecast import check_faults
from paftbench.experiment.overrides import parse_override
from paftbench.mitigations.contract import Mitigation
from paftbench.plugins import build_named, source_sha256
from paftbench.records.kinds import Label
from paftbench.records.roles import AVERAGING_LIMIT, CLEAN, GOLDEN, LIMIT_MITIGATION
from paftbench.records.seeds import Seed
from paftbench.records.trial import Trial, parse_trial
from paftbench.store.directory import Planned
from paftbench.workloads.contract import DataId, Workload

_FAULTS = frozenset({"faults", "fault_seed"})
_MITIGATIONS = frozenset({"mitigations"})
Cells = Sequence[tuple[Combination, Trial]]


ABSENT: Final = "absent"


def plan(
    experiment: Experiment,
    overrides: Sequence[str] = (),
    *,
    plugins: Sequence[Path] = (),
    data_needed: bool = True,
) -> list[Planned]:
    """Every trial of the sweep, validated, golden runs first; trials of equal id once.

    `plugins` are the files of `--plugin`, registered already. `ValueError` or `LookupError` of one line, also for
    data that is not there; with `data_needed` false such data has the fingerprint `ABSENT`, and the trial an id that
    it will not keep. The experiment's other scales are validated too.
    """
    for name in experiment.scales:
        _validate(experiment.at_scale(name))
    parsed = [parse_override(text) for text in overrides]
    experiment, fixed = overridden(experiment, parsed, list(Trial.__dataclass_fields__))
    identities = _Identities("cuda" if torch.cuda.is_available() else "cpu", data_needed)
    cells = [(cell, _trial(cell, experiment, identities.device)) for cell in cells_of(experiment, fixed)]
    planned: dict[str, Planned] = {}
    names: dict[tuple[str, str], str] = {}
    ids: dict[str, str] = {}
    for draft in _drafts(experiment, cells):
        trial = identities.resolved(draft.trial)
        data = identities.data(trial.workload)
        golden = identities.id(_golden(draft.trial)) if experiment.golden else None
        own = identities.id(draft.trial)
        if draft.is_cell and names.setdefault((draft.grid, own), draft.name) != draft.name:
            both = f"{names[draft.grid, own]} and {draft.name}"
            raise Refused(f"{experiment.source}: {both} are the same trial: an axis between them changes nothing")
        if own not in planned and ids.setdefault(draft.name, own) != own:
            raise Refused(f"{experiment.source}: two different trials are called {draft.name}: change a label")
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
                sources=identities.sources(trial),
                data=data,
                trial=trial,
            ),
        )
    if not planned:
        raise Missing(f"{experiment.source}: no trial is left")
    return list(planned.values())


@dataclass(frozen=True, kw_only=True)
class _Draft:
    grid: str
    name: str
    labels: dict[str, Label]
    trial: Trial
    is_cell: bool = False


class _Identities:
    """Resolved trials and their ids; what many trials share is looked at once: data, source files, golden runs."""

    def __init__(self, device: str, data_needed: bool) -> None:
        self.device = device
        self._data_needed = data_needed
        self._data: dict[Workload, DataId] = {}
        self._sources: dict[type, str] = {}
        self._ids: dict[Trial, str] = {}

    def data(self, workload: Workload) -> DataId:
        if workload not in self._data:
            self._data[workload] = self._fingerprint(workload)
        return self._data[workload]

    def _fingerprint(self, workload: Workload) -> DataId:
        try:
            return workload.data_id()
        except (ValueError, LookupError) as error:
            name = workload.data_name
            if isinstance(error, LookupError) and not self._data_needed and name is not None:
                return DataId(name=name, sha256=ABSENT)
            if isinstance(error, Refused):
                raise
            # A workload of the user's says in Python's own words what is wrong.
            raise Refused(f"workload {workload.name}: {error}") from error

    def resolved(self, trial: Trial) -> Trial:
        return trial.resolved(device="cuda" if self.device == "cuda" else "cpu")

    def id(self, trial: Trial) -> str:
        if trial not in self._ids:
            self._ids[trial] = self.resolved(trial).id(self.data(trial.workload))
        return self._ids[trial]

    def sources(self, trial: Trial) -> dict[str, str]:
        """The hash of each plugin's file, by the plugin's name."""
        plugins: list[Any] = [trial.workload, *(fault.model for fault in trial.faults), *trial.mitigations]
        for plugin in plugins:
            if type(plugin) not in self._sources:
                self._sources[type(plugin)] = source_sha256(plugin)
        return {plugin.name: self._sources[type(plugin)] for plugin in plugins}


def _validate(experiment: Experiment) -> None:
    """Refuse what would be refused if this scale were planned; its data and devices need not be here."""
    for cell in cells_of(experiment, {}):
        where = f"{experiment.source}: scale {experiment.scale}: {cell.grid}"
        check_faults(parse_trial(cell.spec, where), where)


def _trial(cell: Combination, experiment: Experiment, device: str) -> Trial:
    where = f"{experiment.source}: {cell.grid}"
    trial = parse_trial(cell.spec, where)
    if trial.device == "cuda" and device != "cuda":
        raise Refused(f"{where}: device cuda is asked for, but torch sees no GPU")
    check_faults(trial, where)
    return trial


def _drafts(experiment: Experiment, cells: Cells) -> Iterator[_Draft]:
    """Golden runs first: where two drafts turn out to be the same trial, the first gives the name."""
    if experiment.golden:
        yield from _shared(GOLDEN, cells, _golden, _FAULTS | _MITIGATIONS)
    for cell, trial in cells:
        labels = {axis.name: label for axis, label in cell.choices}
        for seed in _seeds_of(cell, trial, experiment.source):
            name = name_of(cell.grid, cell.choices, seed)
            yield _Draft(grid=cell.grid, name=name, labels=labels, trial=_seeded(trial, seed), is_cell=True)
    if experiment.clean:
        yield from _shared(CLEAN, cells, _clean, _FAULTS)
    if experiment.averaging_limit:
        regather: Mitigation = build_named("mitigations", {"name": LIMIT_MITIGATION}, AVERAGING_LIMIT)
        for cell, trial in cells:
            if trial.faults:
                choices = cell.choices_beside(_MITIGATIONS)
                labels = _labels(AVERAGING_LIMIT, choices)
                limit = replace(trial, mitigations=(regather,))
                for seed in cell.seeds:
                    name = name_of(cell.grid, choices, seed, first=(AVERAGING_LIMIT,))
                    yield _Draft(grid=cell.grid, name=name, labels=labels, trial=_seeded(limit, seed))


def _seeds_of(cell: Combination, trial: Trial, source: str) -> Sequence[Seed]:
    """The cell's; without faults no trial differs in the faults' seed."""
    if any(seed.fault_seed is not None for seed in cell.seeds) and trial.fault_seed is not None:
        raise Refused(f"{source}: {cell.grid}: fault_seed {trial.fault_seed} stands beside seeds that list it in pairs")
    return cell.seeds if trial.faults else _faultless(cell.seeds)


def _faultless(seeds: Iterable[Seed]) -> list[Seed]:
    return list(dict.fromkeys(Seed(seed.seed) for seed in seeds))


def _seeded(trial: Trial, seed: Seed) -> Trial:
    own = trial.fault_seed if seed.fault_seed is None else seed.fault_seed
    return replace(trial, seed=seed.seed, fault_seed=own)


def _golden(trial: Trial) -> Trial:
    return replace(trial, faults=(), mitigations=(), fault_seed=None)


def _clean(trial: Trial) -> Trial:
    return replace(trial, faults=(), fault_seed=None)


def _shared(kind: str, cells: Cells, change: Callable[[Trial], Trial], dropped: frozenset[str]) -> Iterator[_Draft]:
    """Trials that several cells share. Where grids differ in more than faults, each names the first grid it serves."""
    settings = [replace(change(trial), seed=0) for _, trial in cells]
    firsts: dict[Trial, tuple[Combination, Choices]] = {}
    names: dict[str, set[Trial]] = {}
    for (cell, _), setting in zip(cells, settings, strict=True):
        _, choices = firsts.setdefault(setting, (cell, cell.choices_beside(dropped)))
        names.setdefault(name_of(kind, choices, Seed(0)), set()).add(setting)
    seen = set()
    for (own, _), setting in zip(cells, settings, strict=True):
        cell, choices = firsts[setting]
        ambiguous = len(names[name_of(kind, choices, Seed(0))]) > 1
        labels = _labels(kind, choices) if kind == GOLDEN else {axis.name: label for axis, label in choices}
        for seed in _faultless(own.seeds):
            if (setting, seed) not in seen:
                seen.add((setting, seed))
                yield _Draft(
                    grid=kind,
                    name=name_of(kind, choices, seed, first=(cell.grid,) if ambiguous else ()),
                    labels={**labels, "grid": cell.grid} if ambiguous else labels,
                    trial=_seeded(setting, seed),
                )


def _labels(mitigation: str, choices: Choices) -> dict[str, Label]:
    labels: dict[str, Label] = {"mitigation": mitigation}
    for axis, label in choices:
        labels[axis.name] = f"{mitigation} {label}" if axis.name == "mitigation" else label
    return labels
