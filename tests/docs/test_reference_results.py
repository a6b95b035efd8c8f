"""Committed tables are what the code still gives: some of their rows, run again."""

from pathlib import Path
from typing import Any

import pytest
from support.commits import one_of
from support.reruns import RESULTS, allowed, assert_within, script

from paftbench.environment.machine import differs, machine
from paftbench.store.files import read_json, read_lines

REFERENCE = RESULTS / "reference"
CORE = ("core/resnet", "core/gpt2", "core/llama2")
ROWS = [
    ("stale_shard", "stale/paft_sync/faults.stale.degree=0.5/s0"),
]
SLOW_ROWS = [
    ("quickstart", "noise/ddp/faults.noise.degree=0.03/s1"),
    ("quickstart", "llama2/paft_sync/s0"),
    ("fashion_mnist", "noise/paft_sync/s2"),
    ("gpt2_common_mode", "noise/averaging_limit/s1"),
    ("resnet18", "noise/paft_sync/s0"),
]


def test_a_random_row_of_the_core_tables_comes_out_again(tmp_path: Path) -> None:
    """Another table at each commit."""
    random_row(one_of("core", CORE), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("table", CORE)
def test_a_random_row_of_each_core_table_comes_out_again(table: str, tmp_path: Path) -> None:
    random_row(table, tmp_path)


def random_row(table: str, tmp_path: Path) -> None:
    """Another row at each commit; the name in a failure's output says which."""
    names = [row["result"]["name"] for row in read_lines(REFERENCE / table / "trials.jsonl")]
    name = one_of(table, names)
    print(f"{table}: {name}")
    check_row(table, name, tmp_path)


@pytest.mark.parametrize(("table", "name"), ROWS)
def test_a_committed_row_comes_out_again(table: str, name: str, tmp_path: Path) -> None:
    check_row(table, name, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(("table", "name"), SLOW_ROWS)
def test_a_slow_committed_row_comes_out_again(table: str, name: str, tmp_path: Path) -> None:
    check_row(table, name, tmp_path)


@pytest.mark.parametrize("table", [*CORE, "quickstart", "stale_shard"])
def test_every_kind_of_row_that_may_run_again_was_measured_on_other_processors(table: str) -> None:
    for row in read_lines(REFERENCE / table / "trials.jsonl"):
        assert allowed(script().kind_of(row["trial"], row["result"])), row["result"]["name"]


def test_rows_that_ran_under_other_instructions_are_held_to_what_was_measured() -> None:
    """What a rerun may differ by, and where it ends; a strike more or less is no matter of rounding."""
    row = next(iter(read_lines(REFERENCE / "quickstart" / "trials.jsonl")))
    trial, then = row["trial"], row["result"]
    most = allowed(script().kind_of(trial, then))["metric"]
    assert_within(trial, then, changed(then, most / 2))
    with pytest.raises(AssertionError, match="metric moved by"):
        assert_within(trial, then, changed(then, most + 0.01))
    with pytest.raises(AssertionError):
        assert_within(trial, then, then | {"strikes": then["strikes"] | {"drawn": then["strikes"]["drawn"] + 1}})


def changed(result: dict[str, Any], by: float) -> dict[str, Any]:
    return result | {"metric": result["metric"] | {"worst_rank": result["metric"]["worst_rank"] - by}}


def check_row(table: str, name: str, directory: Path) -> None:
    """Run a row's trial again; the same bits on the machine it comes from, else within what was measured."""
    row = script().row_of(table, name)
    try:
        new = script().rerun(table, name, directory)
    except LookupError as missing:
        pytest.skip(str(missing))
    old, device = row["result"], row["trial"]["device"]
    then: dict[str, Any] = read_json(REFERENCE / table / "about.json")["environment"]
    assert new["strikes"]["drawn"] == old["strikes"]["drawn"]
    if new["data"]["sha256"] != old["data"]["sha256"]:  # another Python's documentation
        assert new["metric"]["worst_rank"] == pytest.approx(old["metric"]["worst_rank"], abs=0.05)
    elif differs(machine(then, device), machine(new["environment"], device)):
        assert_within(row["trial"], old, new)
    else:
        assert new["metric"].items() >= old["metric"].items()  # older records do not count examples
        assert new["strikes"] == old["strikes"]
        assert new["divergence"] == old["divergence"]
