"""Scales of an experiment: what a scale changes, what wins over what, and what is refused."""

import re
from pathlib import Path
from typing import Any

import pytest

from paftbench.cli.main import exit_code
from paftbench.experiment import load, plan
from paftbench.experiment.file import parse_experiment
from paftbench.experiment.plan import ABSENT
from paftbench.records.seeds import Seed
from paftbench.store.directory import Planned

NOISE = {"name": "noise", "model": "gaussian_noise", "degree": 0.1}
MITIGATION = {"ddp": {"mitigations": []}, "often": {"mitigations": [{"name": "paft_sync", "period": 2}]}}


def content(**paper: Any) -> dict[str, Any]:
    """An experiment of two grids, with a block for the scale paper."""
    return {
        "name": "scaled",
        "cost": "seconds",
        "base": {"workload": {"name": "quadratic"}, "steps": 20, "optimizer": {"lr": 0.5}},
        "axes": {"mitigation": MITIGATION},
        "grids": [
            {"name": "few", "set": {"faults": [NOISE], "world_size": 2}, "axes": {"faults.noise.degree": [0.1, 0.2]}},
            {"name": "many", "set": {"faults": [NOISE], "world_size": 4}, "seeds": [7]},
        ],
        "seeds": 2,
        "golden": False,
        "scales": {"paper": paper},
    }


def planned(scale: str, *overrides: str, **paper: Any) -> list[Planned]:
    return plan(parse_experiment(content(**paper), "scaled.yaml").at_scale(scale), overrides)


def values(items: list[Planned], of: Any) -> set[Any]:
    return {of(item.trial) for item in items}


def test_the_file_itself_is_the_small_scale_whatever_its_scales_say() -> None:
    items = planned("small", set={"steps": 99}, axes={"faults.noise.degree": [0.9]}, seeds=1)
    assert len(items) == 2 * 2 * 2 + 2
    assert values(items, lambda trial: trial.steps) == {20}
    assert values(items, lambda trial: trial.faults[0].model.degree) == {0.1, 0.2}


def test_a_scale_sets_fields_over_base_and_grids_and_under_the_axes() -> None:
    paper = {"set": {"world_size": 8, "optimizer.lr": 0.25, "faults.noise.degree": 0.5, "workload": {"dim": 30}}}
    items = planned("paper", **paper)
    assert values(items, lambda trial: trial.world_size) == {8}
    assert values(items, lambda trial: trial.optimizer.lr) == {0.25}
    assert values(items, lambda trial: trial.workload.dim) == {30}
    assert {(item.grid, item.trial.faults[0].model.degree) for item in items} == {
        ("few", 0.1),
        ("few", 0.2),
        ("many", 0.5),
    }


def test_a_scale_goes_further_in_one_grid() -> None:
    items = planned("paper", set={"steps": 50}, grids={"many": {"set": {"steps": 60, "batch_per_rank": 1}}})
    assert {(item.grid, item.trial.steps) for item in items} == {("few", 50), ("many", 60)}


def test_axes_of_a_scale_replace_those_of_the_same_name_wherever_they_stand() -> None:
    items = planned("paper", axes={"faults.noise.degree": [0.3], "mitigation": {"ddp": {}}})
    assert [item.name for item in items] == [
        "few/ddp/faults.noise.degree=0.3/s0",
        "few/ddp/faults.noise.degree=0.3/s1",
        "many/ddp/s7",
    ]


def test_an_axis_of_the_experiment_can_be_replaced_in_one_grid_alone() -> None:
    items = planned("paper", grids={"many": {"axes": {"mitigation": {"rarely": {"mitigations": []}}}}})
    assert {item.labels["mitigation"] for item in items if item.grid == "few"} == {"ddp", "often"}
    assert {item.labels["mitigation"] for item in items if item.grid == "many"} == {"rarely"}


def test_seeds_and_cost_of_a_scale_replace_those_of_experiment_and_grids() -> None:
    scaled = parse_experiment(content(seeds=[3], cost="a day"), "scaled.yaml").at_scale("paper")
    assert (scaled.cost, scaled.seeds, scaled.scale) == ("a day", (Seed(3),), "paper")
    assert {item.trial.seed for item in plan(scaled)} == {3}
    kept = parse_experiment(content(), "scaled.yaml").at_scale("paper")
    assert kept.cost == "seconds" and {item.trial.seed for item in plan(kept)} == {0, 1, 7}


def test_overrides_act_on_the_chosen_scale() -> None:
    items = planned(
        "paper", "faults.noise.degree=0.7", "steps=3", "mitigation=ddp", axes={"faults.noise.degree": [0.3]}
    )
    assert values(items, lambda trial: trial.steps) == {3}
    assert {item.trial.faults[0].model.degree for item in items if item.grid == "few"} == {0.7}


@pytest.mark.parametrize(
    ("paper", "expected"),
    [
        ({"sets": {}}, "scales.paper: unknown key 'sets'; did you mean 'set'?"),
        ({"axes": {"mitigations": {"a": {}}}}, "the file has no axis 'mitigations'; did you mean 'mitigation'?"),
        ({"grids": {"man": {}}}, "scales.paper.grids: unknown key 'man'; did you mean 'many'?"),
        ({"grids": {"many": {"sett": {}}}}, "grids.many: unknown key 'sett'; did you mean 'set'?"),
        ({"grids": {"many": {"axes": {"faults.noise.degree": [1]}}}}, "has no axis 'faults.noise.degree'"),
        ({"seeds": 0}, "seeds must be a number >= 1"),
        ([], "scales.paper: expected a mapping"),
    ],
)
def test_a_malformed_scale_is_refused_when_the_file_is_read(paper: Any, expected: str) -> None:
    with pytest.raises(ValueError, match=re.escape(expected)) as refused:
        parse_experiment({**content(), "scales": {"paper": paper}}, "scaled.yaml")
    assert "\n" not in str(refused.value)


def test_the_small_scale_is_the_file_itself_and_cannot_be_given() -> None:
    with pytest.raises(ValueError, match=r"scales\.small: the file itself is the scale small"):
        parse_experiment({**content(), "scales": {"small": {}}}, "scaled.yaml")


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"stesp": 3}, "scale paper: few: unknown key 'stesp'; did you mean 'steps'?"),
        ({"optimizer": {"lrr": 1}}, "scale paper: few.optimizer: unknown key 'lrr'"),
        ({"faults.nois.degree": 1.0}, "faults.nois.degree: no fault 'nois'; did you mean 'noise'?"),
        ({"workload": {"name": "resnet", "size": "resnet19"}}, "size 'resnet19' is none of resnet"),
    ],
)
def test_a_typo_in_a_scale_is_refused_also_where_the_small_one_is_planned(
    change: Any, expected: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises((ValueError, LookupError), match=re.escape(expected)):
        planned("small", set=change)
    path = tmp_path / "scaled.yaml"
    path.write_text(f"{content(set=change)}")
    assert exit_code(["run", str(path), "-n"]) == 2
    out, err = capsys.readouterr()
    assert out == "" and expected in err and err.count("\n") == 1


def test_an_unknown_scale_is_one_line_that_names_those_there_are(tmp_path: Path) -> None:
    path = tmp_path / "scaled.yaml"
    path.write_text(f"{content()}")
    assert load(str(path), "paper").scale == "paper"
    with pytest.raises(LookupError, match=r"no scale 'papr'; did you mean 'paper'\? Known: paper, small"):
        load(str(path), "papr")
    with pytest.raises(LookupError, match="quickstart: no scale 'paper'; Known: small"):
        load("quickstart", "paper")


def test_data_that_is_not_there_stops_a_plan_unless_it_is_not_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PAFTBENCH_DATA", str(tmp_path))
    paper = {"set": {"workload": {"name": "resnet", "data": "cifar10"}}}
    assert planned("small", **paper)
    with pytest.raises(LookupError, match="paftbench data cifar10"):
        planned("paper", **paper)
    experiment = parse_experiment(content(**paper), "scaled.yaml").at_scale("paper")
    assert {item.data.sha256 for item in plan(experiment, data_needed=False)} == {ABSENT}
