"""Committed tables are what the code still gives: some of their rows, run again."""

import random
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from paftbench.config import parse_trial
from paftbench.environment import environment
from paftbench.files import read_json, read_lines
from paftbench.store import Planned, write_planned
from paftbench.trial import run_trial

REFERENCE = Path(__file__).resolve().parent.parent / "results" / "reference"
ROWS = [
    ("quickstart", "noise/ddp/faults.noise.degree=0.03/s1"),
    ("quickstart", "llama2/paft_sync/s0"),
    ("stale_shard", "stale/paft_sync/faults.stale.degree=0.5/s0"),
]
SLOW_ROWS = [
    ("fashion_mnist", "noise/paft_sync/s2"),
    ("gpt2_common_mode", "noise/averaging_limit/s1"),
    ("resnet18", "noise/paft_sync/s0"),
]


@pytest.mark.parametrize("table", ["core/resnet", "core/gpt2", "core/llama2"])
def test_a_random_row_of_a_core_table_comes_out_again(table: str, tmp_path: Path) -> None:
    """Another row each day; the name in a failure's output says which."""
    names = [row["result"]["name"] for row in read_lines(REFERENCE / table / "trials.jsonl")]
    name = random.Random(f"{table} {date.today()}").choice(names)
    print(f"{table}: {name}")
    check_row(table, name, tmp_path)


@pytest.mark.parametrize(("table", "name"), ROWS)
def test_a_committed_row_comes_out_again(table: str, name: str, tmp_path: Path) -> None:
    check_row(table, name, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(("table", "name"), SLOW_ROWS)
def test_a_slow_committed_row_comes_out_again(table: str, name: str, tmp_path: Path) -> None:
    check_row(table, name, tmp_path)


def check_row(table: str, name: str, directory: Path) -> None:
    """Run a row's trial again; the same bits where the environment is the same, else the same within the tolerance."""
    row = next(row for row in read_lines(REFERENCE / table / "trials.jsonl") if row["result"]["name"] == name)
    old = row["result"]
    trial = parse_trial(row["trial"])
    try:
        data = trial.workload.data_id()
    except LookupError as missing:
        pytest.skip(str(missing))
    planned = Planned(
        id=trial.id(data), name=name, experiment=table, grid=old["grid"], labels=old["labels"], golden_id=None,
        judge="worst_rank", tolerance=0.02, plugins=(), sources={}, data=data, trial=trial,
    )  # fmt: skip
    write_planned(directory, planned)
    assert run_trial(directory) == 0
    new = read_json(directory / "result.json")
    assert new["strikes"]["drawn"] == old["strikes"]["drawn"]
    if same_machine(table) and data.sha256 == old["data"]["sha256"]:
        assert new["metric"] == old["metric"]
        assert new["strikes"] == old["strikes"]
        assert new["divergence"] == old["divergence"]
    else:
        assert new["metric"]["worst_rank"] == pytest.approx(old["metric"]["worst_rank"], abs=0.05)


def same_machine(table: str) -> bool:
    """Whether the committed table comes from the same versions and kind of processor."""
    then: dict[str, Any] = read_json(REFERENCE / table / "about.json")["environment"]
    now = environment()
    versions = ("torch", "torchvision", "transformers", "numpy")
    return then["cpu_capability"] == now["cpu_capability"] and all(
        then["versions"][name] == now["versions"][name] for name in versions
    )
