"""Records come back as they went: the object holds what the file does, and is written as the file was."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.checkout import ROOT

from paftbench.gate import baseline
from paftbench.records.door import parse, plain
from paftbench.records.failure import Failure
from paftbench.records.plan import Plan
from paftbench.records.result import Result, written
from paftbench.records.step import StepRow
from paftbench.store.directory import read_record, write_failure, write_result
from paftbench.store.files import read_json, read_lines, write_json

KEPT = Path(__file__).parent / "data" / "trial"
TABLES = sorted((ROOT / "results" / "reference").rglob("trials.jsonl"))


def test_a_trial_is_written_as_it_was(tmp_path: Path) -> None:
    record = read_record(KEPT)
    assert record.result is not None
    write_result(tmp_path, record.result)
    write_json(tmp_path / "trial.json", plain(record.planned))
    for name in ("result.json", "trial.json"):
        assert (tmp_path / name).read_bytes() == (KEPT / name).read_bytes()


def test_a_failure_is_written_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "trial.json").write_bytes((KEPT / "trial.json").read_bytes())
    write_failure(tmp_path, "crashed", "killed by SIGKILL")
    once = (tmp_path / "result.json").read_text()
    assert "examples" not in json.loads(once)["metric"]
    write_result(tmp_path, read_record(tmp_path).result)  # type: ignore[arg-type]
    assert (tmp_path / "result.json").read_text() == once


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.parent.name)
def test_every_committed_row_is_a_record_whose_values_are_the_rows(table: Path) -> None:
    assert table.stat().st_size
    for row in read_lines(table):
        rest: dict[str, Any] = {"history": row["result"].get("curve", {}), "environment": {}}
        result = written(parse(Result, row["result"] | rest, table.name))
        own = {key: value for key, value in row["result"].items() if key != "curve"}
        assert json.dumps({key: held(result[key], value) for key, value in own.items()}) == json.dumps(own)


def held(whole: Any, asked: Any) -> Any:
    """The keys that an older row has, which may leave out some of today's."""
    if isinstance(asked, dict):
        return {key: held(whole[key], value) for key, value in asked.items()}
    return list(whole) if isinstance(whole, tuple) else whole


def test_rows_and_failures_are_written_as_they_were() -> None:
    for row in read_lines(KEPT / "steps.jsonl"):
        step = plain(parse(StepRow, row, "a row"))
        assert step.keys() == row.keys() and json.dumps({key: step[key] for key in row}) == json.dumps(row)
    failure = {"strikes": 3, "part": None, "reason": "why", "trace": "where"}
    assert json.dumps(plain(parse(Failure, failure, "x"))) == json.dumps(failure)


def test_the_committed_baseline_is_written_as_it_was(tmp_path: Path) -> None:
    path = ROOT / "results" / "baselines" / "ci-quick.json"
    kept = parse(baseline.Kept, read_json(path), path.name)
    baseline.write(tmp_path / "again.json", kept)
    assert (tmp_path / "again.json").read_text() == path.read_text()


@pytest.mark.parametrize("value", [True, "1", None, [], 1.5])
def test_a_value_of_another_kind_is_named_by_file_and_field(value: Any) -> None:
    plan = read_json(KEPT / "trial.json")
    plan["trial"]["world_size"] = value
    with pytest.raises(ValueError, match=r"^a file: trial\.world_size must be a whole number >= 1, got "):
        parse(Plan, plan, "a file")


def test_whole_numbers_stay_whole_and_what_is_not_known_is_let_be() -> None:
    row = {"step": 1, "loss": [1, 2.0], "lr": 1, "divergence": None, "of another version": 3}
    step = parse(StepRow, row, "a row")
    assert repr((step.lr, step.loss)) == "(1, (1, 2.0))"


def test_records_are_imported_without_pydantic_or_torch() -> None:
    code = "import sys\nimport paftbench.store.directory\nsys.exit(not {'pydantic', 'torch'}.isdisjoint(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
