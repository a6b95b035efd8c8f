"""Experiments: what is refused and how, names, pairing of seeds, golden runs, overrides."""

from pathlib import Path
from typing import Any

import pytest

from paftbench.experiment import load, plan, shipped_experiments
from paftbench.experiment.fields import merged
from paftbench.experiment.file import parse_experiment
from paftbench.experiment.forecast import warnings_of
from paftbench.experiment.selection import parse_selection
from paftbench.experiment.strikes import expected_strikes
from paftbench.experiment.yaml_text import read_yaml
from paftbench.store.directory import Planned, read_planned, write_planned

NOISE = {"name": "noise", "model": "gaussian_noise", "degree": 0.1}
MITIGATION = {"ddp": {"mitigations": []}, "paft_sync": {"mitigations": [{"name": "paft_sync", "period": 10}]}}


def content(**changes: Any) -> dict[str, Any]:
    """A small experiment as its YAML would read."""
    return {
        "schema": 1,
        "name": "core/small",
        "base": {"workload": {"name": "quadratic"}, "steps": 20, "world_size": 4},
        "axes": {"mitigation": MITIGATION},
        "grids": [{"name": "noise", "set": {"faults": [NOISE]}, "axes": {"faults.noise.degree": [0.01, 0.1]}}],
        "seeds": 2,
        **changes,
    }


def planned(*overrides: str, **changes: Any) -> list[Planned]:
    return plan(parse_experiment(content(**changes), "small.yaml"), overrides)


def names(*overrides: str, **changes: Any) -> list[str]:
    return [item.name for item in planned(*overrides, **changes)]


def fault(**changes: Any) -> dict[str, Any]:
    return {"base": {"workload": {"name": "quadratic"}, "steps": 20, "faults": [{**NOISE, **changes}]}, "grids": [
        {"name": "all"}
    ]}  # fmt: skip


def base(**changes: Any) -> dict[str, Any]:
    return {"base": {"workload": {"name": "quadratic"}, "steps": 20, **changes}, "grids": [{"name": "all"}], "axes": {}}


TWO_RULES = '''
from dataclasses import dataclass
from paftbench.mitigations.contract import Mitigation

@dataclass(frozen=True, kw_only=True)
class FirstRule(Mitigation):
    """A rule."""
    name = "first_rule"
    aggregates = True

@dataclass(frozen=True, kw_only=True)
class SecondRule(Mitigation):
    """A rule."""
    name = "second_rule"
    aggregates = True
'''


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"gridz": []}, r"small.yaml: unknown key 'gridz'; did you mean 'grids'\?"),
        ({"schema": 2}, r"small.yaml: schema 2 is not 1"),
        ({"name": "../up"}, r"name must be words joined by '/', got '../up'"),
        ({"golden": "no"}, r"golden: expected true or false, got 'no'"),
        ({"judge": "worst"}, r"judge: Input should be .*, got 'worst'; did you mean 'worst_rank'\?"),
        ({"tolerance": -1}, r"tolerance .* must be a number >= 0, got -1"),
        ({"seeds": 0}, r"seeds must be a number >= 1 or a list of numbers >= 0, got 0"),
        ({"axes": {"seed": [0, 1]}}, r"seed is no axis; use seeds"),
        ({"axes": {"mitigation": "ddp"}}, r"expected a list of values or labels with their changes, got 'ddp'"),
        ({"grids": [{"name": "golden"}]}, r"name must be a word other than golden and clean, got 'golden'"),
        ({"grids": [{"name": "a"}, {"name": "a"}]}, r"two grids are called 'a'"),
        ({"grids": [{"name": "a", "axis": {}}]}, r"grids\[0\]: unknown key 'axis'; did you mean 'axes'\?"),
        ({"expect": [{"value": "outcome"}]}, r"a bound is missing, one of at_least, at_most, never"),
        ({"expect": [{"value": "x", "at_leest": 1}]}, r"unknown key 'at_leest'; did you mean 'at_least'\?"),
        (
            {"expect": [{"where": {"mitigatoin": "ddp"}, "value": "x", "at_least": 1}]},
            r"expect\[0\].where: unknown key 'mitigatoin'; did you mean 'mitigation'\?",
        ),
        (base(step=3), r"unknown key 'step'; did you mean 'steps'\?"),
        (base(optimizer={"lrr": 3}), r"optimizer: unknown key 'lrr'; did you mean 'lr'\?"),
        (base(optimizer={"lr": "fast"}), r"optimizer.lr: .* got 'fast'"),
        (base(workload={"name": "resnit"}), r"no workload 'resnit'; did you mean 'resnet'\?"),
        (base(mitigations=[{"name": "paft_sink"}]), r"no mitigation 'paft_sink'; did you mean 'paft_sync'\?"),
        (base(mitigations=[{"name": "paft_sync", "perod": 1}]), r"unknown key 'perod'; did you mean 'period'\?"),
        (base(mitigations=[{"name": "first_rule"}, {"name": "second_rule"}]), r"at most one may aggregate, got first_"),
        (base(placement="torchrun", procs=3), r"procs must divide world_size 4, got 3"),
        (base(procs=2), r"procs .* needs placement torchrun, got 'virtual'"),
        (base(steps=0), r"steps must be >= 1, got 0"),
        (fault(model="gausian_noise"), r"no fault model 'gausian_noise'; did you mean 'gaussian_noise'\?"),
        (fault(degre=1), r"unknown key 'degre'; did you mean 'degree'\?"),
        (fault(unit="per_bit"), r"unit 'per_bit' is not one of gaussian_noise; Known: rms, std"),
        (fault(site="rezult"), r"site: 'rezult' is not a site; did you mean 'result'\?"),
        (fault(site="sync"), r"site: 'sync' cannot be struck yet"),
        (fault(ranks=[4]), r"fault 'noise': rank 4 is not below world_size 4"),
        (fault(ranks={"random": 5}), r"fault 'noise': 5 random ranks of 4"),
        (fault(degree=float("nan")), r"degree \(std\) must be within .* got nan"),
        (fault(degree=-0.1), r"degree \(std\) must be within .* got -0.1"),
        (fault(schedule={"kind": "steps", "steps": [3, 20]}), r"fault 'noise': step 20 is beyond the trial's 20 steps"),
        (fault(schedule={"kind": "brust", "every": 2}), r"'brust' is not a schedule; did you mean 'burst'\?"),
        (fault(parameters="thete"), r"fault 'noise': parameters: 'thete' matches no parameter; did you mean 'theta'\?"),
    ],
)
def test_a_mistake_is_refused_before_anything_runs_in_one_line(
    tmp_path: Path, changes: dict[str, Any], expected: str
) -> None:
    from paftbench.plugins import load_file

    (tmp_path / "rules.py").write_text(TWO_RULES)
    load_file(tmp_path / "rules.py")
    with pytest.raises((ValueError, LookupError), match=expected) as caught:
        planned(**changes)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("step=3", r"unknown key 'step'; did you mean 'steps'\?"),
        ("steps", r"expected KEY=VALUE, got 'steps'"),
        ("=3", r"expected KEY=VALUE, got '=3'"),
        ("steps=", r"steps=: a value is missing"),
        ("steps=1,,2", r"a value between commas is empty"),
        ("steps=[1", r"steps=\[1 is not YAML"),
        ("steps.x=1", r"steps.x: steps is 20, it has no fields"),
        ("mitigation=ddpp", r"axis mitigation has no label 'ddpp'; did you mean 'ddp'\?"),
        ("faults.nois.degree=1", r"no fault of this experiment has the name; did you mean 'noise'\?"),
        ("judge=rank0,worst_rank", r"judge is a setting of the whole experiment: it takes one value"),
        ("seeds=x", r"seeds must be a number >= 1 or a list"),
    ],
)
def test_a_wrong_override_is_refused_in_one_line(override: str, expected: str) -> None:
    with pytest.raises((ValueError, LookupError), match=expected) as caught:
        planned(override)
    assert "\n" not in str(caught.value)


def test_duplicate_keys_and_text_that_is_not_yaml_are_refused_with_their_place(tmp_path: Path) -> None:
    path = tmp_path / "e.yaml"
    path.write_text("name: e\nbase:\n  steps: 1\n  steps: 2\n")
    with pytest.raises(ValueError, match=r"e.yaml, line 4: duplicate key 'steps'$"):
        load(str(path))
    path.write_text("name: [e\n")
    with pytest.raises(ValueError, match=r"e.yaml is not YAML: line \d, column \d: ") as caught:
        load(str(path))
    assert "\n" not in str(caught.value)
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ValueError, match="is not YAML"):
        load(str(path))
    with pytest.raises(LookupError, match=r"missing\.yaml does not exist"):
        load("missing.yaml")
    with pytest.raises(LookupError, match="no experiment 'quikstart'; did you mean 'quickstart'"):
        load("quikstart")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-3", 1e-3), ("-1E3", -1e3), ("1.5e+2", 150.0), (".5", 0.5), ("3", 3), ("no", "no"), ("on", "on"),
        ("true", True), ("null", None), ("2024-01-01", "2024-01-01"), ("1e", "1e"), ("[1e-3, a]", [1e-3, "a"]),
        ("e-3", "e-3"), (".inf", float("inf")),
    ],
)  # fmt: skip
def test_yaml_values_read_as_users_expect(text: str, value: Any) -> None:
    read = read_yaml(text, "value")
    assert read == value and type(read) is type(value)


def test_names_tell_grid_labels_values_and_seed() -> None:
    assert names(seeds=1) == [
        "golden/s0",
        "noise/ddp/faults.noise.degree=0.01/s0",
        "noise/ddp/faults.noise.degree=0.1/s0",
        "noise/paft_sync/faults.noise.degree=0.01/s0",
        "noise/paft_sync/faults.noise.degree=0.1/s0",
    ]


def test_seeds_are_shared_by_all_cells_and_one_golden_run_per_seed_serves_them() -> None:
    trials = planned(seeds=[3, 5])
    goldens = {item.trial.seed: item.id for item in trials if item.grid == "golden"}
    assert sorted(goldens) == [3, 5]
    cells = [item for item in trials if item.grid == "noise"]
    assert len(cells) == 8 and all(item.golden_id == goldens[item.trial.seed] for item in cells)
    assert all(item.golden_id is None and item.labels == {"mitigation": "golden"} for item in trials[:2])
    assert all(item.trial.fault_seed == item.trial.seed for item in trials)


def test_a_swept_fault_seed_needs_no_further_golden_run() -> None:
    assert sum(item.grid == "golden" for item in planned("fault_seed=1,2,3")) == 2


def test_grids_that_train_differently_have_golden_runs_of_their_own() -> None:
    grids = [{"name": "a", "set": {"faults": [NOISE]}}, {"name": "b", "set": {"faults": [NOISE], "steps": 30}}]
    found = planned(grids=grids, seeds=1, axes={})
    assert [(item.name, item.labels.get("grid")) for item in found if item.grid == "golden"] == [
        ("golden/a/s0", "a"),
        ("golden/b/s0", "b"),
    ]
    assert len({item.golden_id for item in found if item.grid != "golden"}) == 2


def test_an_axis_that_changes_the_training_changes_the_golden_run_too() -> None:
    assert [name for name in names("optimizer.lr=0.1,0.01", seeds=1) if name.startswith("golden")] == [
        "golden/optimizer.lr=0.1/s0",
        "golden/optimizer.lr=0.01/s0",
    ]


def test_clean_averaging_limit_and_golden_collapse_where_they_are_the_same_trial() -> None:
    found = planned(clean=True, averaging_limit=True, seeds=1)
    assert [item.name for item in found if item.grid == "clean"] == ["clean/paft_sync/s0"]
    limits = [item for item in found if item.labels.get("mitigation") == "averaging_limit"]
    assert [item.name for item in limits] == [
        "noise/averaging_limit/faults.noise.degree=0.01/s0",
        "noise/averaging_limit/faults.noise.degree=0.1/s0",
    ]
    assert all([m.name for m in item.trial.mitigations] == ["regather"] for item in limits)
    assert len({item.id for item in found}) == len(found)


def test_without_golden_nothing_is_judged_by_one() -> None:
    found = planned(golden=False)
    assert {item.golden_id for item in found} == {None} and {item.grid for item in found} == {"noise"}


def test_an_axis_is_narrowed_by_label_and_its_values_replaced() -> None:
    narrowed = names("mitigation=ddp", "faults.noise.degree=1e-3,2e-3", "seeds=1")
    assert narrowed[1:] == ["noise/ddp/faults.noise.degree=0.001/s0", "noise/ddp/faults.noise.degree=0.002/s0"]


def test_commas_outside_brackets_sweep_and_inside_do_not() -> None:
    swept = planned("optimizer.lr=1e-1,1e-2", "mitigation=ddp", "seed=7")
    assert {item.trial.optimizer.lr for item in swept} == {0.1, 0.01} and {item.trial.seed for item in swept} == {7}
    whole = planned("workload={name: quadratic, dim: 8}", "faults.noise.ranks=[0,1]", "seed=0,1")
    assert {item.trial.seed for item in whole} == {0, 1}
    assert {item.trial.faults[0].ranks for item in whole if item.trial.faults} == {(0, 1)}


def test_overrides_win_over_base_sets_and_axes() -> None:
    found = planned("steps=5", "mitigations.paft_sync.period=2", "tolerance=0.5", "averaging_limit=true", seeds=1)
    assert {item.trial.steps for item in found} == {5} and {item.tolerance for item in found} == {0.5}
    periods = {m.period for item in found for m in item.trial.mitigations if m.name == "paft_sync"}
    assert periods == {2} and any("averaging_limit" in item.name for item in found)


def test_a_change_of_plugin_replaces_its_fields_and_a_change_of_field_keeps_them() -> None:
    spec = {"optimizer": {"name": "sgd", "lr": 0.1, "momentum": 0.9}, "steps": 3}
    assert merged(spec, {"optimizer": {"lr": 1}})["optimizer"] == {"name": "sgd", "lr": 1, "momentum": 0.9}
    assert merged(spec, {"optimizer": {"name": "adam", "lr": 1}})["optimizer"] == {"name": "adam", "lr": 1}
    assert merged(spec, {"optimizer.lr": 2})["optimizer"]["lr"] == 2
    assert spec["optimizer"] == {"name": "sgd", "lr": 0.1, "momentum": 0.9}


def test_the_id_holds_what_changes_bits_and_nothing_else() -> None:
    (one, *_), (other, *_) = planned(seeds=1), planned(seeds=1, tolerance=0.3, name="renamed")
    assert one.id == other.id and len(one.id) == 16
    ids = {planned(override, seeds=1)[0].id for override in ("placement=torchrun", "exact=true", "precision=bf16")}
    assert len(ids | {one.id}) == 4


def test_a_plan_survives_its_file(tmp_path: Path) -> None:
    for item in planned(seeds=1, averaging_limit=True):
        write_planned(tmp_path / item.id, item)
        assert read_planned(tmp_path / item.id) == item


def test_expected_strikes_count_steps_ranks_and_elements() -> None:
    burst = {"kind": "burst", "every": 5, "length": 1}
    flips = {"name": "f", "model": "bit_flip", "degree": 0.5, "ranks": [1, 2], "schedule": burst}
    (item,) = planned(base={"workload": {"name": "quadratic", "dim": 10}, "steps": 20, "faults": [flips]}, axes={},
                      grids=[{"name": "all"}], seeds=1, golden=False)  # fmt: skip
    assert expected_strikes(item.trial) == pytest.approx(4 * 2 * 10 * 0.5)


@pytest.mark.parametrize(("site", "optimizer", "spaces"), [
    ("parameter", "adam", 1), ("optimizer_state", "sgd", 1), ("optimizer_state", "adam", 2),
    ("optimizer_state", "adamw", 2),
])  # fmt: skip
def test_expected_strikes_count_every_kind_of_optimizer_state(site: str, optimizer: str, spaces: int) -> None:
    flips = {"name": "f", "model": "bit_flip", "degree": 0.5, "ranks": [1, 2], "site": site}
    base = {
        "workload": {"name": "quadratic", "dim": 10},
        "steps": 20,
        "faults": [flips],
        "optimizer": {"name": optimizer},
    }
    (item,) = planned(base=base, axes={}, grids=[{"name": "all"}], seeds=1, golden=False)
    assert expected_strikes(item.trial) == pytest.approx(20 * 2 * 10 * 0.5 * spaces)


def test_what_is_probably_not_meant_is_warned_about_once_per_cell() -> None:
    flips = {"name": "f", "model": "bit_flip", "degree": 1e-9}
    found = planned(base={"workload": {"name": "quadratic"}, "steps": 5, "world_size": 512, "placement": "torchrun",
                          "device": "cpu", "faults": [flips]},
                    grids=[{"name": "all"}], seeds=2)  # fmt: skip
    lines = warnings_of(found)
    assert sum("fewer than 1" in line for line in lines) == 2
    assert sum("period 10 is more than the trial's 5 steps" in line for line in lines) == 1
    assert any("512 processes on" in line for line in lines)


@pytest.mark.parametrize("site", ["result", "parameter", "optimizer_state"])
def test_mitigations_of_gradients_against_a_fault_on_memory_are_warned_about(site: str) -> None:
    flips = {"name": "f", "model": "bit_flip", "degree": 0.1, "site": site}
    sync = {"name": "paft_sync", "period": 2}
    listed = {"plain": [], "regather": [{"name": "regather"}], "sync": [{"name": "regather"}, sync]}
    axis = {label: {"mitigations": mitigations} for label, mitigations in listed.items()}
    found = planned(base={"workload": {"name": "quadratic"}, "steps": 5, "faults": [flips]}, grids=[{"name": "all"}],
                    axes={"mitigation": axis})  # fmt: skip
    lines = [line for line in warnings_of(found) if "memory" in line]
    expected = "all/regather: fault 'f' strikes memory after the update, where regather does nothing"
    assert lines == ([] if site == "result" else [expected])


def test_selections_read_as_pytests() -> None:
    assert parse_selection("ddp and not (0.1/ or golden)")("noise/ddp/degree=0.01/s0")
    assert not parse_selection("ddp and not (0.1/ or golden)")("noise/ddp/degree=0.1/s0")
    assert parse_selection("GOLDEN or x")("golden/s0")
    for broken in ("", "(ddp", "ddp and", "ddp golden", "not"):
        with pytest.raises(ValueError, match="-k"):
            parse_selection(broken)


@pytest.mark.parametrize("name", list(shipped_experiments()))
def test_every_shipped_experiment_reads(name: str) -> None:
    experiment = load(name)
    assert experiment.about and experiment.cost
    if name == "quickstart":
        assert len(plan(experiment)) > 30
