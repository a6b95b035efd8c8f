"""What a table says its sweep could have found: the smallest effect, and the grain of the evaluation."""

import json
from pathlib import Path
from statistics import stdev
from typing import Any

import pytest
from support.synthetic_results import GPT2, RESNET, cell, golden, spec, write_trial

from paftbench.analysis.table import json_rows as rows
from paftbench.analysis.table import render
from paftbench.analysis.text import number, to_json
from paftbench.workloads.gpt2 import Gpt2
from paftbench.workloads.images import load_images
from paftbench.workloads.quadratic import Quadratic
from paftbench.workloads.resnet import ResNet

GOLDEN = [0.98, 0.981, 0.979, 0.98, 0.982]
DDP = [0.9, 0.91, 0.93, 0.92, 0.9]
SYNC = [0.97, 0.975, 0.97, 0.978, 0.97]
D5 = 1.6820 * 5**0.5  # standard errors at which the paired t test with 5 pairs has 80 % power


def error(own: list[float], other: list[float]) -> float:
    return stdev(b - a for a, b in zip(own, other, strict=True)) / 5**0.5


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    golden(tmp_path, GOLDEN)
    cell(tmp_path, "ddp", DDP)
    cell(tmp_path, "paft_sync", SYNC)
    return tmp_path


def of(directory: Path, mitigation: str) -> dict[str, Any]:
    (found,) = [row for row in rows(directory) if row["labels"]["mitigation"] == mitigation]
    return found["detectable"]


def test_the_smallest_effect_is_by_the_spread_of_differences_within_seeds(sweep: Path) -> None:
    assert of(sweep, "paft_sync") == pytest.approx(
        {"golden": D5 * error(SYNC, GOLDEN), "ddp": D5 * error(SYNC, DDP)}, rel=1e-3
    )
    assert of(sweep, "ddp") == {"golden": pytest.approx(D5 * error(DDP, GOLDEN), rel=1e-3), "ddp": None}
    assert of(sweep, "golden") == {"golden": None, "ddp": None}
    assert json.loads(to_json(rows(sweep)))[0]["detectable"] == {"golden": None, "ddp": None}


def test_the_foot_of_the_table_says_it_per_grid_and_yardstick(sweep: Path) -> None:
    text = render(sweep, width=200)
    assert "Smallest mean difference that such seeds show 4 times in 5 (paired t), median..widest cell:" in text
    cells = D5 * error(SYNC, GOLDEN), D5 * error(DDP, GOLDEN)
    assert f"  from golden: noise {number(sum(cells) / 2)}..{number(max(cells))}." in text
    assert f"  from plain DDP: noise {number(D5 * error(SYNC, DDP))}." in text


def test_with_two_seeds_nothing_is_said_to_be_detectable(tmp_path: Path) -> None:
    golden(tmp_path, GOLDEN[:2])
    cell(tmp_path, "ddp", DDP[:2])
    assert of(tmp_path, "ddp")["golden"] is None and "Smallest mean" not in render(tmp_path)


def test_equal_differences_have_no_spread_to_tell_by(tmp_path: Path) -> None:
    golden(tmp_path, [0.98] * 5)
    cell(tmp_path, "ddp", [0.98] * 5)
    assert of(tmp_path, "ddp")["golden"] == 0.0 and "Smallest mean" not in render(tmp_path)


def test_an_accuracy_says_what_one_image_is_and_how_many_the_tolerance_is(tmp_path: Path) -> None:
    metric = {"name": "accuracy", "direction": "max", "chance": 0.1, "untrained": 0.1, "examples": 360,
              "mean_model": 0.98, "worst_rank": 0.98, "rank0": 0.98}  # fmt: skip
    id = write_plain(tmp_path, RESNET)
    path = tmp_path / id / "result.json"
    result = json.loads(path.read_text())
    path.write_text(json.dumps(result | {"metric": metric}))
    (row,) = rows(tmp_path)
    assert row["examples"] == 360 and row["tolerance"] == 0.02
    assert "accuracy: 360 evaluation examples, one is 0.0028; the tolerance 0.02 is 7." in render(tmp_path)


def test_records_without_a_count_say_nothing_of_grain(tmp_path: Path) -> None:
    write_plain(tmp_path, RESNET)
    assert rows(tmp_path)[0]["examples"] is None and "evaluation examples" not in render(tmp_path)


@pytest.mark.parametrize("examples", ["many", True, -3, 0, [], 1e9])
def test_a_senseless_count_of_examples_is_refused(tmp_path: Path, examples: Any) -> None:
    path = tmp_path / write_plain(tmp_path, RESNET) / "result.json"
    result = json.loads(path.read_text())
    result["metric"]["examples"] = examples
    path.write_text(json.dumps(result))
    with pytest.raises(ValueError, match=r"result\.json: metric\.examples must be a whole number"):
        rows(tmp_path)


def test_a_loss_has_no_grain(tmp_path: Path) -> None:
    path = tmp_path / write_plain(tmp_path, GPT2, metric_name="val_loss") / "result.json"
    result = json.loads(path.read_text())
    result["metric"]["examples"] = 64
    path.write_text(json.dumps(result))
    assert rows(tmp_path)[0]["examples"] == 64 and "evaluation examples" not in render(tmp_path)


def test_workloads_know_how_many_examples_they_evaluate() -> None:
    assert ResNet().examples() == len(load_images("digits").test_NCHW)
    assert Gpt2().examples() == len(Gpt2().corpus().evaluation(Gpt2().window))
    assert Quadratic().examples() is None


def write_plain(directory: Path, workload: dict[str, Any], **more: Any) -> str:
    trial = spec(workload, steps=10, seed=0, faults=[], mitigations=[])
    return write_trial(directory, trial, grid="golden", labels={"mitigation": "golden"}, **more)
