"""A trial's fields: one default each, validated once, the same from and to plain values, one identity."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

import paftbench
from paftbench.plugins import source_sha256
from paftbench.records.trial import Trial, parse_trial
from paftbench.workloads.contract import DataId

DATA = DataId(name="none", sha256="")
FAULT = {
    "name": "flips", "model": "bit_flip", "degree": 1e-3, "unit": "per_element", "bits": "any", "site": "result",
    "ranks": {"random": 1}, "parameters": "*", "persistence": "transient",
    "schedule": {"kind": "burst", "every": 50, "length": 1, "offset": 0},
}  # fmt: skip
SPEC: dict[str, Any] = {
    "workload": {"name": "quadratic", "dim": 100, "curvature": 1.0, "noise": 0.5},
    "world_size": 4,
    "batch_per_rank": 8,
    "steps": 20,
    "epochs": None,
    "optimizer": {
        "name": "adam", "lr": 0.001, "momentum": 0.9, "weight_decay": 0.0, "betas": [0.9, 0.99], "eps": 1e-8,
    },
    "lr_schedule": {"name": "step", "warmup": 2, "milestones": [0.3, 0.6], "gamma": 0.1},
    "precision": "fp32",
    "placement": "torchrun",
    "procs": 2,
    "nodes": 1,
    "device": "cpu",
    "exact": True,
    "eval_every": 10,
    "measure_every": 5,
    "checkpoint": {"every": 7},
    "timeout_s": 60.0,
    "seed": 1,
    "fault_seed": 2,
    "faults": [FAULT],
    "mitigations": [
        {"name": "clip_value", "limit": 0.1},
        {"name": "paft_sync", "period": 10, "overlap": True, "state": "all", "buffers": False},
    ],
}  # fmt: skip
OTHER: dict[str, Any] = {
    "workload": {"name": "quadratic", "dim": 101, "curvature": 1.0, "noise": 0.5},
    "world_size": 6,
    "batch_per_rank": 9,
    "steps": 21,
    "epochs": 1.5,
    "optimizer": {**SPEC["optimizer"], "lr": 0.002},
    "lr_schedule": {**SPEC["lr_schedule"], "milestones": [0.3]},
    "precision": "bf16",
    "placement": "virtual",
    "procs": 4,
    "nodes": 2,
    "device": "cuda",
    "exact": False,
    "eval_every": 11,
    "measure_every": 6,
    "checkpoint": {"every": 8},
    "timeout_s": 61.0,
    "seed": 3,
    "fault_seed": 4,
    "faults": [{**FAULT, "degree": 2e-3}],
    "mitigations": SPEC["mitigations"][::-1],
}


def changed(**changes: Any) -> dict[str, Any]:
    spec = {**SPEC, **changes}
    return {**spec, "procs": None} if spec["placement"] == "virtual" else spec


def trial(**changes: Any) -> Trial:
    return parse_trial(changed(**changes))


def test_a_trial_and_its_spec_are_inverses() -> None:
    assert set(SPEC) == set(OTHER) == set(Trial.__dataclass_fields__)
    assert trial().spec() == SPEC
    assert parse_trial(json.loads(json.dumps(trial().spec()))) == trial()


@pytest.mark.parametrize("name", OTHER)
def test_every_field_survives_the_round_trip_and_changes_the_id(name: str) -> None:
    other = trial(**{name: OTHER[name]})
    assert other.spec()[name] == OTHER[name] != trial().spec()[name]
    assert parse_trial(json.loads(json.dumps(other.spec()))) == other
    assert other.id(DATA) != trial().id(DATA)


def test_the_id_of_a_trial_never_changes() -> None:
    assert trial().id(DATA) == "7e73ea6726e00c0b"
    text = json.dumps({**SPEC, "data": {"name": "none", "sha256": ""}}, sort_keys=True, separators=(",", ":"))
    assert trial().id(DATA) == hashlib.sha256(text.encode()).hexdigest()[:16]


def test_the_id_knows_the_data_and_not_the_order_of_keys() -> None:
    assert trial().id(DataId(name="digits", sha256="ab")) != trial().id(DataId(name="digits", sha256="cd"))
    assert parse_trial(dict(reversed(SPEC.items()))).id(DATA) == trial().id(DATA)
    ids = {trial(faults=[{**FAULT, **change}]).id(DATA) for change in FAULT_CHANGES} | {trial().id(DATA)}
    assert len(ids) == 1 + len(FAULT_CHANGES)


FAULT_CHANGES: list[dict[str, Any]] = [
    {"name": "other"}, {"degree": 2e-3}, {"unit": "per_bit"}, {"bits": "sign"}, {"bits": 3}, {"site": "contribution"},
    {"ranks": "all"}, {"ranks": [1]}, {"parameters": "theta"}, {"persistence": "permanent"}, {"schedule": "every_step"},
    {"schedule": {"kind": "burst", "every": 50, "length": 1, "offset": 1}},
]  # fmt: skip


def test_defaults_are_those_of_the_interface() -> None:
    spec = parse_trial({"workload": {"name": "resnet"}}).spec()
    assert {k: v for k, v in spec.items() if k not in ("workload", "lr_schedule")} == {
        "world_size": 4, "batch_per_rank": 32, "steps": 400, "epochs": None,
        "optimizer": {
            "name": "sgd", "lr": 0.1, "momentum": 0.9, "weight_decay": 1e-4, "betas": [0.9, 0.999], "eps": 1e-8,
        },
        "precision": "fp32", "placement": "virtual", "procs": None, "nodes": 1, "device": "auto", "exact": False,
        "eval_every": 50, "measure_every": None, "checkpoint": {"every": 0}, "timeout_s": 600.0, "seed": 0,
        "fault_seed": None, "faults": [], "mitigations": [],
    }  # fmt: skip
    assert spec["workload"]["size"] == "nano" and spec["workload"]["data"] == "digits"


def test_numbers_mean_the_same_as_integers_floats_and_yaml_strings() -> None:
    same = [trial(timeout_s=value, optimizer={"lr": lr}) for value, lr in ((60, 1), (60.0, 1.0), ("60", "1e0"))]
    assert len({one.id(DATA) for one in same}) == 1


def test_resolving_leaves_nothing_to_derive() -> None:
    one = trial(placement="virtual", epochs=1.5, measure_every=None, fault_seed=None, device="auto", seed=9)
    resolved = one.resolved(device="cpu")
    assert (resolved.steps, resolved.epochs) == (48, None)  # ceil(1.5 x 1024 items / (4 ranks x 8))
    assert (resolved.measure_every, resolved.fault_seed, resolved.device, resolved.procs) == (1, 9, "cpu", None)
    spread = trial(procs=None, measure_every=None).resolved(device="cpu")
    assert (spread.procs, spread.measure_every) == (4, 50)
    assert resolved.resolved(device="cpu") == resolved
    assert trial(device="cuda").resolved(device="cpu").device == "cuda"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"world_sise": 4}, "trial: unknown key 'world_sise'; did you mean 'world_size'"),
        ({"workload": {"name": "resnett"}}, "no workload 'resnett'; did you mean 'resnet'"),
        ({"workload": "resnet"}, "trial.workload: expected a mapping with a name, got 'resnet'"),
        ({"workload": {"name": ["resnet"]}}, r"no workload \['resnet'\]"),
        ({"workload": {"name": "quadratic", "dmi": 3}}, r"\(quadratic\): unknown key 'dmi'; did you mean 'dim'"),
        ({"workload": {"name": "quadratic", "dim": 0}}, r"workload.*: dim \(parameters\) must be >= 1, got 0"),
        ({"mitigations": [{"name": "paft_snc"}]}, "no mitigation 'paft_snc'; did you mean 'paft_sync'"),
        ({"mitigations": [{"name": "paft_sync", "period": 0}]}, r"period \(steps .*\) must be >= 1, got 0"),
        ({"mitigations": [{"name": "paft_sync", "state": "some"}]}, "state: .*'all' or 'reset', got 'some'"),
        ({"mitigations": [{"name": "clip_value", "limit": 0}]}, r"limit \(largest .*\) must be > 0, got 0"),
        ({"mitigations": {"name": "paft_sync"}}, "trial.mitigations: expected a list, got"),
        ({"faults": "bit_flip"}, "trial.faults: expected a list, got 'bit_flip'"),
        ({"faults": [{}]}, r"trial.faults\[0\]: expected a mapping with a fault model"),
        ({"faults": [FAULT, FAULT]}, "faults: the name 'flips' is given twice"),
        ({"faults": [{**FAULT, "ranks": [0, 4]}]}, "fault 'flips': rank 4 is not below world_size 4"),
        ({"faults": [{**FAULT, "ranks": {"random": 5}}]}, "fault 'flips': 5 random ranks of 4"),
        ({"faults": [{**FAULT, "schedule": {"kind": "steps", "steps": [1, 20]}}]}, "step 20 is beyond the .* 20 steps"),
        ({"faults": [{**FAULT, "bits": 40}]}, "fault 'flips': bits .*torch.float32 has bits 0 to 31, got 40"),
        ({"steps": 0}, "steps must be >= 1, got 0"),
        ({"steps": 1.5}, "trial.steps: .*got 1.5"),
        ({"steps": "many"}, "trial.steps: .*got 'many'"),
        ({"world_size": 0}, "world_size must be >= 1, got 0"),
        ({"epochs": 0}, "epochs must be a number > 0, got 0"),
        ({"epochs": float("nan")}, "epochs must be a number > 0, got nan"),
        ({"measure_every": 0}, r"measure_every \(steps\) must be >= 1, got 0"),
        ({"timeout_s": 0}, "timeout_s must be > 0, got 0"),
        ({"timeout_s": float("inf")}, "timeout_s must be > 0, got inf"),
        ({"seed": -1}, r"seed and fault_seed must be within \[0, 2\*\*63\), got -1 and 2"),
        ({"procs": 3}, "procs must divide world_size 4, got 3"),
        ({"precision": "fp8"}, "trial.precision: .*'fp32', 'bf16' or 'fp16', got 'fp8'"),
        ({"placement": "ddp"}, "trial.placement: .*'virtual' or 'torchrun', got 'ddp'"),
        ({"checkpoint": {"every": -1}}, r"trial.checkpoint: every \(steps between checkpoints\) must be >= 0, got -1"),
        ({"optimizer": {"name": "lion"}}, "trial.optimizer.name: .*got 'lion'"),
        ({"optimizer": "sgd"}, "trial.optimizer: expected a mapping, got 'sgd'"),
        ({"optimizer": {"lr": -1}}, "trial.optimizer: lr must be a finite number >= 0, got -1"),
        ({"optimizer": {"lr": float("nan")}}, "trial.optimizer: lr must be a finite number >= 0, got nan"),
        ({"optimizer": {"betas": [0.9, 1.0]}}, r"trial.optimizer: betas must be within \[0, 1\), got \(0.9, 1.0\)"),
        ({"lr_schedule": {"warmup": -1}}, r"trial.lr_schedule: warmup \(steps\) must be >= 0, got -1"),
        ({"lr_schedule": {"milestones": [2]}}, r"trial.lr_schedule: milestones \(shares of the steps\) .*got \(2.0,\)"),
        ({"lr_schedule": {"gamma": float("nan")}}, r"trial.lr_schedule: gamma \(.*\) must be .*got nan"),
        ({"lr_schedule": {"gamma": -0.5}}, r"trial.lr_schedule: gamma \(.*\) must be .*got -0.5"),
    ],
    ids=str,
)  # fmt: skip
def test_a_trial_that_means_nothing_is_refused_in_one_line(changes: dict[str, Any], message: str) -> None:
    with pytest.raises((ValueError, LookupError), match=message) as error:
        trial(**changes)
    assert "\n" not in str(error.value)


def test_processes_belong_to_torchrun() -> None:
    with pytest.raises(
        ValueError, match=r"procs \(processes of a torchrun trial\) needs placement torchrun, got 'virtual'"
    ):
        parse_trial({**SPEC, "placement": "virtual"})


@pytest.mark.parametrize("spec", [[], "trial", None], ids=str)
def test_a_trial_is_a_mapping(spec: Any) -> None:
    with pytest.raises(ValueError, match="trial: expected a mapping, got"):
        parse_trial(spec)


def test_an_epoch_longer_than_the_listed_steps_is_checked_once_it_is_known() -> None:
    fault = {**FAULT, "schedule": {"kind": "steps", "steps": [40]}}
    one = trial(epochs=1.0, faults=[fault], procs=None, placement="virtual")
    with pytest.raises(ValueError, match="step 40 is beyond the trial's 32 steps"):
        one.resolved(device="cpu")


@pytest.mark.parametrize("field", ["world_size", "timeout_s", "seed"])
def test_true_is_no_number(field: str) -> None:
    with pytest.raises(ValueError, match=f"trial.{field}: expected a number or a word, got True"):
        parse_trial({"workload": {"name": "quadratic"}, field: True})


def test_true_is_no_number_in_a_list_either() -> None:
    with pytest.raises(ValueError, match=r"trial.optimizer.betas: expected a number or a word, got \[False, 0.9\]"):
        parse_trial({"workload": {"name": "quadratic"}, "optimizer": {"name": "adam", "betas": [False, 0.9]}})


def test_a_plugins_source_is_its_own_file_and_what_it_inherits_but_not_the_contract() -> None:
    def of(*names: str) -> str:
        root = Path(paftbench.__file__).parent
        return hashlib.sha256(b"".join((root / name).read_bytes() for name in names)).hexdigest()

    sync = paftbench.Mitigation("paft_sync")
    assert source_sha256(sync) == of("mitigations/paft_sync.py", "mitigations/averaging.py")
    assert source_sha256(paftbench.Mitigation("clip_value")) == of("mitigations/clip_value.py")
    assert source_sha256(paftbench.Fault("bit_flip", degree=0).model) == of("../fault_models/bit_flip.py")
