"""Experiments that cannot be meant: one line that says where and what, exit 2, nothing written, nothing lost."""

import json
import shutil
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from support.whole_result import whole_result

from paftbench.cli.main import exit_code
from paftbench.experiment import load, plan
from paftbench.store.directory import Planned, write_json
from paftbench.store.plans import write_plan

QUICKSTART = (files("paftbench.experiments") / "quickstart.yaml").read_text(encoding="utf-8")
DEGREES = "[1.0e-3, 1.0e-2, 3.0e-2]"
NOISE_AXIS = f"faults.noise.degree: {DEGREES}"
DDP = "ddp: {mitigations: []}"
SMALL = "name: x\nbase: {workload: {name: quadratic}}\n"
WITH = "name: x\nbase: {{workload: {{name: quadratic}}, {}}}\n"


def refusal(capsys: pytest.CaptureFixture[str], tmp_path: Path, *arguments: str) -> str:
    """The one line of a command that refuses; what is on the disk stays as it is."""
    out = tmp_path / "out"
    before = contents(out)
    assert exit_code(["run", *arguments, "--out", str(out)]) == 2
    printed, err = capsys.readouterr()
    assert printed == "" and err.startswith("paftbench: error: ") and err.count("\n") == 1, (printed, err)
    assert contents(out) == before
    return err


def contents(folder: Path) -> dict[str, bytes | None]:
    return {str(path): path.read_bytes() if path.is_file() else None for path in sorted(folder.rglob("*"))}


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        # axes that do not match what they stand for
        (NOISE_AXIS, "faults.nose.degree: [1]", "grid noise: axis faults.nose.degree: no fault 'nose'; did you mean"),
        (NOISE_AXIS, "faults.flips.degree: [1]", "grid noise: axis faults.flips.degree: no fault 'flips'"),
        (NOISE_AXIS, "faults.noise.degre: [1]", "unknown key 'degre'; did you mean 'degree'?"),
        (NOISE_AXIS, "faults.noise: [1]", "grid noise: axis faults.noise: expected a field after the name"),
        (NOISE_AXIS, "faults: [1]", "faults: expected a list, got 1"),
        (NOISE_AXIS, "mitigations.paft_sync.period: [5, 20]", "no mitigation 'paft_sync'; there is none"),
        (NOISE_AXIS, "optimzer.lr: [1]", "unknown key 'optimzer'; did you mean 'optimizer'?"),
        (NOISE_AXIS, "optimizer.lrr: [1]", "unknown key 'lrr'; did you mean 'lr'?"),
        (NOISE_AXIS, "steps.x: [1]", "grid noise: axis steps.x: steps is 200, it has no fields"),
        (NOISE_AXIS, "seed: [1, 2]", "seed is no axis; use seeds"),
        (NOISE_AXIS, "tolerance: [1, 2]", "unknown key 'tolerance'"),
        (DEGREES, "[]", "axes.faults.noise.degree: expected a list of values or labels with their changes, got []"),
        (DEGREES, "null", "expected a list of values or labels with their changes, got None"),
        (DEGREES, "0.1", "expected a list of values or labels with their changes, got 0.1"),
        (DEGREES, "[{a: 1}]", "degree: Input should be a valid number, got {'a': 1}"),
        (DEGREES, "[big]", "degree: Input should be a valid number"),
        (DEGREES, "[.nan]", "degree (std) must be within"),
        (DEGREES, "[-1]", "degree (std) must be within"),
        (DEGREES, "[1, 1.0]", "are the same trial: an axis between them changes nothing"),
        (DDP, "ddp: {mitigatons: []}", "unknown key 'mitigatons'; did you mean 'mitigations'?"),
        (DDP, "ddp: []", "axes.mitigation.ddp: expected a mapping, got []"),
        (DDP, "ddp: {mitigations: [{name: paft_sync, period: 10}]}", "are the same trial"),
        (DDP, "1: {}\n        '1': {}", "duplicate key '1'"),
        # grids
        ("  - name: noise ", "  - name: golden ", "name must be a word other than golden and clean, got 'golden'"),
        ("  - name: flips ", "  - name: noise ", "two grids are called 'noise'"),
        ("    seeds: 1\n", "    seeds: []\n", "grid gpt2: seeds must be a number >= 1 or a list"),
        # the rest of the file
        ("schema: 1", "schema: 2", "schema 2 is not 1, the one this version reads"),
        ("name: quickstart", "name: ../quickstart", "name must be words joined by '/'"),
        ("name: quickstart", "nmae: quickstart", "unknown key 'nmae'; did you mean 'name'?"),
        (
            "judge: worst_rank",
            "judge: best",
            "judge: Input should be 'mean_model', 'worst_rank' or 'rank0', got 'best'",
        ),
        ("seeds: 3", "seeds: 0", "seeds must be a number >= 1"),
        ("seeds: 3", "seeds: [9223372036854775808]", "seeds must be below 2**63"),
        ("tolerance: 0.02", "tolerance: -1", "tolerance (in the metric's unit) must be a number >= 0, got -1"),
        ("world_size: 4", "world_size: 0", "world_size must be >= 1, got 0"),
        ("steps: 200", "steps: 1.5", "steps: Input should be a valid integer"),
        ("steps: 200", "steps: yes", "steps: Input should be a valid integer"),
        ("steps: 200", "steps: true", "steps: expected a number or a word, got True"),
        ("name: resnet, size: nano", "name: resnet, size: naon", "size 'naon' is none of resnet; did you mean 'nano'?"),
        ("name: resnet,", "name: resnett,", "no workload 'resnett'; did you mean 'resnet'?"),
        ("ranks: all}", "ranks: [4]}", "rank 4 is not below world_size 4"),
        ("model: bit_flip", "model: bit_flop", "no fault model 'bit_flop'; did you mean 'bit_flip'?"),
        ("site: result, ranks: all", "site: results, ranks: all", "'results' is not a site; did you mean 'result'?"),
        ("period: 10}]}", "period: 0}]}", "must be >= 1, got 0"),
        ("seeds: 3", "seeds: 3\nseeds: 4", "duplicate key 'seeds'"),
        ("seeds: 3", "\tseeds: 3", "is not YAML: line"),
    ],
)
def test_a_mistake_in_a_file_is_one_line(
    old: str, new: str, expected: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert old in QUICKSTART
    (tmp_path / "quickstart.yaml").write_text(QUICKSTART.replace(old, new, 1))
    assert expected in refusal(capsys, tmp_path, str(tmp_path / "quickstart.yaml"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "expected a mapping, got None"),
        ("- 1\n", "expected a mapping, got [1]"),
        ("base: {}\n", "name must be words joined by '/', got None"),
        ("name: x\n", "all.workload: expected a mapping with a name, got {}"),
        ("name: x\ngrids: []\n", "grids must be a list with at least one grid, got []"),
        ("name: x\ngrids:\n", "grids must be a list with at least one grid, got None"),
        ("name: x\ngrids: [{set: {}}]\n", "grids[0]: name must be a word"),
        ("name: x\nbase: [1]\n", "base: expected a mapping, got [1]"),
        ("name: x\nbase: !!python/name:os.system\n", "line 2: tags (python/name:os.system) are not read"),
        ("name: x\n? [1]\n: 2\n", "a key must be a word or a number, got [1]"),
        # what is false or empty where a mapping or a list belongs
        (SMALL + "axes: 0\n", "x.yaml: axes: expected a mapping, got 0"),
        (SMALL + "axes: []\n", "x.yaml: axes: expected a mapping, got []"),
        (SMALL + "expect: 0\n", "x.yaml: expect: expected a list, got 0"),
        (SMALL + "expect: [{where: 0, value: nsr, at_least: 0}]\n", "expect[0].where: expected a mapping, got 0"),
        (SMALL + "grids: 0\n", "x.yaml: grids must be a list with at least one grid, got 0"),
        (SMALL + "grids: [{name: a, set: 0}]\n", "x.yaml: grid a: set: expected a mapping, got 0"),
        (SMALL + "grids: [{name: a, axes: ''}]\n", "x.yaml: grid a: axes: expected a mapping, got ''"),
        (SMALL + "scales: 0\n", "x.yaml: scales: expected a mapping, got 0"),
        (SMALL + "seeds: {}\n", "x.yaml: seeds must be a number >= 1 or a list of numbers >= 0, got {}"),
        (SMALL + "about: [a]\n", "x.yaml: about must be a text, got ['a']"),
        ("schema: true\n" + SMALL, "x.yaml: schema True is not 1"),
        ("name: x\nbase: 0\n", "x.yaml: base: expected a mapping, got 0"),
        (WITH.format("faults: 0"), "x.yaml: all.faults: expected a list, got 0"),
        (WITH.format("mitigations: false"), "x.yaml: all.mitigations: expected a list, got False"),
        # a length that is said twice
        (WITH.format("steps: 5, epochs: 1"), "grid all: steps and epochs say the same: give one, got 5 and 1"),
        (SMALL + "grids: [{name: a, set: {steps: 5, epochs: 1}}]\n", "grid a: steps and epochs say the same"),
        (SMALL + "axes: {steps: [5, 6], epochs: [1, 2]}\n", "steps and epochs say the same: only one can be an axis"),
        # words and numbers that are something else
        (WITH.format("steps: 0x10"), "x.yaml, line 2: 0x10 is no plain decimal number"),
        (WITH.format("steps: '012'"), "all.steps: expected a plain decimal number, got '012'"),
        (WITH.format("steps: 2024-01-01"), "all.steps: Input should be a valid integer"),
        (WITH.format("exact: yes"), "all.exact: expected true or false, got 'yes'"),
        (WITH.format("exact: 1"), "all.exact: expected true or false, got 1"),
        (WITH.format("true: 1"), "all: unknown key 'True'"),
        (WITH.format("timeout_s: inf"), "timeout_s must be > 0, got inf"),
        (WITH.format("steps: 18014398509481984"), "steps must be at most 2**53, got 18014398509481984"),
        (WITH.format("epochs: 1e300"), "epochs 1e+300 are more than 2**53 steps"),
        # keys and names
        (WITH.format("optimizer: {1: 2}") + "grids: [{name: a, set: {optimizer: {1: 3}}}]\n", "unknown key '1'"),
        (WITH.format("faults: [{name: a.b, model: bit_flip}]"), "faults[0].name: a name has printable characters"),
        (SMALL + 'axes: {m: {"a\\nb": {}, c: {steps: 3}}}\n', "axes.m: a label must be 1 to 200 printable"),
        (
            SMALL + "axes: {a: {x: {steps: 3}, x/y: {steps: 4}}, b: {y/z: {eval_every: 3}, z: {eval_every: 4}}}\n"
            "golden: false\n",
            "two different trials are called all/x/y/z/s0: change a label",
        ),
        (
            WITH.format("mitigations: [{name: clip_value}, {name: regather}, {name: clip_value, limit: 1}]"),
            "all: mitigations: clip_value is given twice",
        ),
        (SMALL + "axes: {mitigation: {}}\n", "expected a list of values or labels with their changes, got {}"),
        (SMALL + "axes: {steps: {a: {steps: 3}, b: {steps: 3}}}\n", "all/a/s0 and all/b/s0 are the same trial"),
        (SMALL + "expect: [{value: gap_closed}]\n", "a bound is missing, one of at_least, at_most, never"),
        (SMALL + "expect: [{where: {mitigaton: ddp}, value: gap_closed, at_least: 1}]\n", "unknown key 'mitigaton'"),
    ],
)
def test_a_file_that_is_no_experiment_is_one_line(
    text: str, expected: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "x.yaml").write_text(text)
    assert expected in refusal(capsys, tmp_path, str(tmp_path / "x.yaml"))


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        (["mitigation=dpp"], "axis mitigation has no label 'dpp'; did you mean 'ddp'?"),
        (["mitigation="], "mitigation=: a value is missing"),
        (["steps=,"], "steps=,: a value between commas is empty"),
        (["steps"], "expected KEY=VALUE, got 'steps'"),
        (["steps=3", "steps=4"], "steps is given 2 times; commas sweep"),
        (["steps=[1"], "steps=[1 is not YAML"),
        (["base.steps=3"], "unknown key 'base.steps'; did you mean 'steps'?"),
        (["workload.size.x=3"], "workload.size.x: size is 'nano', it has no fields"),
        (["faults.nose.degree=5"], "no fault of this experiment has the name; did you mean 'noise'?"),
        (["mitigations.sync.period=5,6"], "no mitigation of this experiment has the name"),
        (["mitigations=[]"], "are the same trial: an axis between them changes nothing"),
        (["tolerance=1,2"], "tolerance is a setting of the whole experiment: it takes one value"),
        (["golden=maybe"], "golden: expected true or false, got 'maybe'"),
        (["seed=-1"], "seeds must be a number >= 1 or a list of numbers >= 0, got [-1]"),
        (["fault_seed=-1"], "seed and fault_seed must be within [0, 2**63)"),
        (
            ["faults.noise.site=optimizer_state", "optimizer.momentum=0"],
            "fault 'noise': site 'optimizer_state' needs an optimizer that keeps state, got sgd with optimizer.mom",
        ),
        (
            ["faults.noise.site=sync"],
            "faults[0].site: 'sync' cannot be struck yet; this version strikes contribution, ",
        ),
        (["steps=012"], "steps=012, line 1: 012 is no plain decimal number"),
        (["faults.noise.degree=1e-3,0b11"], "0b11 is no plain decimal number"),
        (["steps=5", "epochs=1"], "steps and epochs say the same: give one, got 5 and 1"),
        (["fault_seed=3", "seeds=[[0,100]]"], "fault_seed 3 stands beside seeds that list it in pairs"),
        (["seeds=[[0,1,2]]"], "seeds must be a number >= 1 or a list of numbers >= 0, got [[0, 1, 2]]"),
        (["steps=" + "9" * 3000], "is beyond 2**64"),
        (["-k", "(" * 2000], "-k: an expression has at most 100 words and parentheses, got 2000"),
        (["-k", "not " * 2000 + "x"], "-k: an expression has at most 100 words and parentheses, got 2001"),
        (["--engine", "slurm"], "--engine (what places trials): slurm is not installed; this version has local"),
        (["--engine", "ray"], "--engine (what places trials): ray is not installed; this version has local"),
        (["--engine", "locla"], "no engine 'locla'; did you mean 'local'? Known: local, ray, slurm."),
        (["grid=nose"], "no grid 'nose'; did you mean 'noise'?"),
        (["grid=gpt2", "mitigation=clip_paft_sync"], "axis mitigation has no label 'clip_paft_sync'"),
        (["-k", "nothing"], "-k 'nothing' matches none of"),
    ],
)
def test_a_mistake_on_the_command_line_is_one_line(
    overrides: list[str], expected: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert expected in refusal(capsys, tmp_path, "quickstart", *overrides)


def test_a_sweep_over_what_only_some_cells_have_leaves_the_others_as_they_are() -> None:
    found = plan(load("quickstart"), ["grid=noise", "mitigations.paft_sync.period=5,20", "faults.noise.degree=0.1"])
    assert [item.name for item in found if item.grid == "noise" and item.trial.seed == 0] == [
        "noise/ddp/faults.noise.degree=0.1/s0",
        "noise/paft_sync/faults.noise.degree=0.1/mitigations.paft_sync.period=5/s0",
        "noise/paft_sync/faults.noise.degree=0.1/mitigations.paft_sync.period=20/s0",
        "noise/averaging_limit/faults.noise.degree=0.1/s0",
    ]


@pytest.fixture
def finished(tmp_path: Path) -> list[Planned]:
    """A finished sweep of `small.yaml` under `out`."""
    (tmp_path / "small.yaml").write_text(SMALL + "axes: {steps: [3, 4]}\n")
    planned = plan(load(str(tmp_path / "small.yaml")))
    for item in planned:
        write_plan(tmp_path / "out" / "x" / item.id, item, None)
        write_json(tmp_path / "out" / "x" / item.id / "result.json", whole_result(item.spec()))
    return planned


def spoil(directory: Path, what: str) -> None:
    """Half a trial directory, or one of something else."""
    plan_path, result = directory / "trial.json", directory / "result.json"
    if what == "no plan":
        plan_path.unlink()
    elif what == "torn plan":
        plan_path.write_bytes(plan_path.read_bytes()[:200])
    elif what == "torn result":
        result.write_bytes(result.read_bytes()[:20])
    elif what == "binary result":
        result.write_bytes(b"\xff\xfe\0")
    elif what == "a folder for a result":
        result.unlink()
        result.mkdir()
    elif what in ("result of another schema", "plan of another schema"):
        path = result if what.startswith("result") else plan_path
        path.write_text(json.dumps({**json.loads(path.read_text()), "schema": 99}))
    elif what == "another trial":
        plan_path.write_text(json.dumps({**json.loads(plan_path.read_text()), "id": "0" * 16}))
    elif what == "a file":
        shutil.rmtree(directory)
        directory.write_text("")
    elif what == "a neighbour of another schema":
        (directory.parent / "other").mkdir()
        (directory.parent / "other" / "trial.json").write_text('{"schema": 99}')
    else:
        raise ValueError(what)


@pytest.mark.parametrize(
    ("what", "expected"),
    [
        ("no plan", "is half a trial directory: it has result.json and no trial.json"),
        ("torn plan", "trial.json is not JSON"),
        ("torn result", "result.json is not JSON"),
        ("binary result", "result.json is not JSON"),
        ("a folder for a result", "result.json is no file but a directory"),
        ("result of another schema", "result.json has schema 99; this version reads schema 1"),
        ("plan of another schema", "trial.json has schema 99; this version reads schema 1"),
        ("another trial", "trial.json beside it of 0000000000000000"),
        ("a file", "Not a directory: "),
        ("a neighbour of another schema", "other/trial.json has schema 99; this version reads schema 1"),
    ],
)
@pytest.mark.parametrize("flags", [[], ["--force"]], ids=["run", "force"])
def test_results_that_cannot_be_read_are_refused_before_anything_runs(
    what: str, expected: str, flags: list[str], finished: list[Planned], tmp_path: Path, capsys: Any
) -> None:
    spoil(tmp_path / "out" / "x" / finished[-1].id, what)
    assert expected in refusal(capsys, tmp_path, str(tmp_path / "small.yaml"), *flags)


@pytest.mark.parametrize("place", ["out", "out/x"])
def test_a_file_where_results_should_go_is_one_line(place: str, tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "small.yaml").write_text(SMALL)
    (tmp_path / place).parent.mkdir(exist_ok=True)
    (tmp_path / place).write_text("")
    assert "Not a directory: " in refusal(capsys, tmp_path, str(tmp_path / "small.yaml"))


def test_a_directory_of_results_is_no_experiment(finished: list[Planned], tmp_path: Path, capsys: Any) -> None:
    directory = tmp_path / "out" / "x"
    assert f"{directory} is a directory; expected an experiment" in refusal(capsys, tmp_path, str(directory))
