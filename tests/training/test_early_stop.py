"""A trial with nothing left to train ends early, and only such a one."""

from pathlib import Path
from typing import Any

import pytest
from oracles.quadratic_runs import quadratic

import paftbench
from paftbench.mitigations import Mitigation
from paftbench.plugins import load_file
from paftbench.records.trial import Trial
from paftbench.store.directory import Planned, write_planned
from paftbench.store.files import read_json
from paftbench.training import loop as train
from paftbench.trial import run_trial
from paftbench.workloads.contract import DataId
from paftbench.workloads.gpt2 import Gpt2
from paftbench.workloads.resnet import ResNet


def result(directory: Path, workload: Any, fault: Any, mitigations: tuple[Mitigation, ...] = ()) -> dict[str, Any]:
    trial = Trial(
        workload=workload, world_size=2, batch_per_rank=4, steps=35, eval_every=35, faults=(fault,),
        mitigations=mitigations, device="cpu",
    ).resolved(device="cpu")  # fmt: skip
    planned = Planned(
        id=directory.name, name="lost", experiment="test", grid="test", labels={}, golden_id=None, judge="worst_rank",
        tolerance=0.02, plugins=(), sources={}, data=DataId(name="none", sha256=""), trial=trial,
    )  # fmt: skip
    write_planned(directory, planned)
    assert run_trial(directory) == 0
    return read_json(directory / "result.json")


def overflow(**fields: Any) -> Any:
    """Any exponent bit of a tenth of the gradient, at steps 3 and 4."""
    schedule = {"kind": "window", "start": 3, "stop": 5}
    return paftbench.Fault("bit_flip", degree=0.1, bits="exponent", schedule=schedule, **fields)


@pytest.mark.parametrize("workload", [ResNet(), Gpt2()], ids=["resnet", "gpt2"])
@pytest.mark.parametrize("mitigations", [(), (paftbench.Mitigation("paft_sync", period=4, overlap=True),)])
def test_a_lost_trial_ends_early_as_the_full_run_ends(
    tmp_path: Path, workload: Any, mitigations: tuple[Mitigation, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    early = result(tmp_path / "early", workload, overflow(), mitigations)
    monkeypatch.setattr(train, "LOST_EVERY", 1000)
    full = result(tmp_path / "full", workload, overflow(), mitigations)
    assert (early["stopped_at"], full["stopped_at"]) == (10, None)
    assert early["outcome"] == full["outcome"] == "nonfinite"
    assert str(early["metric"]) == str(full["metric"]) and early["strikes"] == full["strikes"]
    assert early["history"]["step"] == [0, 10] and full["history"]["step"] == [0, 35]
    assert len((tmp_path / "early" / "steps.jsonl").read_text().splitlines()) == 10


@pytest.mark.parametrize(
    ("finite", "expected"), [((False, False), True), ((True, False), False), ((True, True), False)]
)
def test_only_a_trial_without_a_sound_rank_is_lost(finite: tuple[bool, bool], expected: bool) -> None:
    virtual = quadratic(dim=3, world_size=2)
    for row, sound in enumerate(finite):
        if not sound:
            virtual.replicas.parameters[0][row, 1] = float("inf")
    trial = Trial(workload=ResNet(), world_size=2)
    assert train.lost(trial, virtual, [float("nan"), float("nan")]) == expected
    assert not train.lost(trial, virtual, [1.0, float("nan")]), "a finite loss says that something is left"


RESTART = """
from dataclasses import dataclass
from paftbench.mitigations import Mitigation

@dataclass(frozen=True, kw_only=True)
class Restart(Mitigation):
    name = "restart"
    restores = True

    def on_step(self, step):
        for block in step.parameters:
            block.nan_to_num_(nan=0.0, posinf=0.0, neginf=0.0)
"""


def test_a_mitigation_that_restores_keeps_the_trial_going(tmp_path: Path) -> None:
    (tmp_path / "restart.py").write_text(RESTART)
    load_file(tmp_path / "restart.py")
    found = result(tmp_path / "kept", ResNet(), overflow(), (paftbench.Mitigation("restart"),))
    assert found["stopped_at"] is None
