"""A sweep needs of an engine what the protocol says and nothing more."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support import fake_trial

from paftbench.experiment import plan
from paftbench.experiment.file import parse_experiment
from paftbench.store.directory import Planned, read_result
from paftbench.sweep.engines.engine import Ending, Engine, Setting
from paftbench.sweep.sweep import Execution


class Instant:
    """Runs each trial where it is started, as a stranger would write it who has read the protocol only."""

    slots = nodes = 1

    def __init__(self) -> None:
        self.done: list[Path] = []

    def expect(self, modules: Iterable[str]) -> None:
        pass

    def warm(self) -> None:
        pass

    def fits(self, processes: int) -> bool:
        return not self.done

    def start(self, directory: Path, processes: int, *, torchrun: bool, setting: Setting) -> None:
        fake_trial.run(directory)
        self.done.append(directory)

    def ended(self) -> list[tuple[Path, Ending]]:
        done, self.done = self.done, []
        return [(directory, 0) for directory in done]

    def stop(self, directories: Sequence[Path]) -> None:
        pass


def planned(**base: Any) -> list[Planned]:
    """A golden run and three cells."""
    fields = {"workload": {"name": "quadratic"}, "steps": 5, **base}
    noise = {"faults": [{"name": "noise", "model": "gaussian_noise", "degree": 0.1}]}
    grid = {"name": "noise", "set": noise, "axes": {"faults.noise.degree": [0.1, 0.2, 0.3]}}
    return plan(parse_experiment({"name": "fake", "base": fields, "grids": [grid]}, "fake"))


def test_a_sweep_runs_on_an_engine_that_was_written_from_the_protocol_alone(tmp_path: Path) -> None:
    engine: Engine = Instant()
    Execution(root=tmp_path, planned=planned(), engine=engine).run()
    assert [read_result(tmp_path / item.id).outcome for item in planned()] == ["masked"] * 4


def test_a_trial_of_more_machines_than_the_engine_has_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    several = planned(placement="torchrun", nodes=2)
    with pytest.raises(ValueError, match=r"nodes 2 needs an engine of more than this machine"):
        Execution(root=tmp_path / "runs", planned=several, engine=Instant()).prepare()
    assert not (tmp_path / "runs").exists()
    larger = Instant()
    larger.nodes = 2
    assert Execution(root=tmp_path / "runs", planned=several, engine=larger).prepare() == 4


def test_timed_trials_take_turns_by_seed_and_others_keep_the_plans_order(tmp_path: Path) -> None:
    plain = [replace(item, golden_id=None) for item in planned()]
    timed = [
        replace(item, id=f"{item.id[:-1]}{seed}", trial=replace(item.trial, seed=seed, placement="torchrun"))
        for item in plain
        for seed in (0, 1)
    ]
    Execution(root=tmp_path, planned=[*timed, *plain], engine=Instant()).run()
    expected = [*plain, *(item for seed in (0, 1) for item in timed if item.trial.seed == seed)]
    assert (tmp_path / "starts.txt").read_text().split() == [item.id for item in expected]
