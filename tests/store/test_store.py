"""Trial directories: atomic, readable after a crash, owned by one process at a time."""

import errno
import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from paftbench.records.result import StrikeCounts
from paftbench.store import directory as store
from paftbench.store import files


def trial_json(directory: Path, **changes: Any) -> dict[str, Any]:
    values = {
        "schema": 1, "id": directory.name, "name": "noise/ddp/s0", "experiment": "e", "grid": "noise", "labels": {},
        "golden_id": None, "judge": "worst_rank", "tolerance": 0.02, "plugins": [], "sources": {},
        "data": {"name": "digits", "sha256": "0"}, "trial": {
            "seed": 0, "fault_seed": 0, "world_size": 4, "steps": 10, "workload": {"name": "resnet"}, "faults": [],
            "mitigations": [], "optimizer": {"name": "sgd", "lr": 0.1},
        },
    }  # fmt: skip
    values.update(changes)
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "trial.json").write_text(json.dumps(values))
    return values


def test_non_finite_numbers_survive_a_round_trip_as_strict_json(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    store.write_json(path, {"a": math.nan, "b": [math.inf, -math.inf], "c": {"d": 1e-3}, "e": None, "f": "nano"})
    json.loads(path.read_text(), parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    back = store.read_json(path)
    assert math.isnan(back["a"]) and back["b"] == [math.inf, -math.inf]
    assert back["c"] == {"d": 1e-3} and back["e"] is None and back["f"] == "nano"


def test_a_torn_last_line_is_ignored_and_a_broken_middle_one_is_not(tmp_path: Path) -> None:
    path = tmp_path / "steps.jsonl"
    path.write_text(store.encode_line({"step": 0, "nsr": math.inf}) + store.encode_line({"step": 1}) + '{"step": 2, "l')
    assert list(store.read_lines(path)) == [{"step": 0, "nsr": math.inf}, {"step": 1}]
    path.write_text('{"step": 0\n' + store.encode_line({"step": 1}))
    with pytest.raises(ValueError, match="line 1, is not JSON"):
        list(store.read_lines(path))


def test_a_failed_write_leaves_the_old_file_and_no_temporary_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "result.json"
    store.write_json(path, {"old": 1})

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        store.write_json(path, {"new": 1})
    assert [p.name for p in tmp_path.iterdir()] == ["result.json"]
    assert store.read_json(path) == {"old": 1}


def test_records_of_another_schema_are_refused_in_one_line(tmp_path: Path) -> None:
    trial_json(tmp_path / "aa", schema=2)
    with pytest.raises(ValueError, match=r"has schema 2; this version reads schema 1$"):
        store.read_results(tmp_path)


def test_a_sweep_reads_its_trials_golden_first_and_a_trial_directory_reads_itself(tmp_path: Path) -> None:
    trial_json(tmp_path / "aa", name="noise/ddp/s0")
    trial_json(tmp_path / "bb", name="golden/s0", grid="golden")
    trial_json(tmp_path / ".rerun-aa")
    store.write_failure(tmp_path / "bb", "crashed", "signal 9")
    records = store.read_results(tmp_path)
    assert [record.id for record in records] == ["bb", "aa"]
    assert records[0].result is not None and records[1].result is None
    assert [record.id for record in store.read_results(tmp_path / "aa")] == ["aa"]
    (tmp_path / "empty").mkdir()
    with pytest.raises(LookupError, match="holds no trials"):
        store.read_results(tmp_path / "empty")


def test_reading_results_needs_no_torch(tmp_path: Path) -> None:
    trial_json(tmp_path / "aa")
    code = f"import sys, pathlib, paftbench.store.directory as s; s.read_results(pathlib.Path({str(tmp_path)!r}))"
    check = code + "; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0


def test_the_schema_is_the_one_the_trials_are_written_in() -> None:
    from paftbench.records.trial import SCHEMA

    assert store.SCHEMA == SCHEMA


def test_a_failure_record_has_every_key_of_a_result(tmp_path: Path) -> None:
    trial_json(tmp_path / "aa")
    store.write_failure(tmp_path / "aa", "crashed", "killed by SIGKILL", strikes=StrikeCounts(drawn=3, landed=3))
    result = store.read_json(tmp_path / "aa" / "result.json")
    assert result["outcome"] == "crashed" and result["reason"] == "killed by SIGKILL"
    assert result["strikes"] == {"drawn": 3, "landed": 3, "changed": None}
    for key in ("metric", "divergence", "nsr", "mitigation", "time", "history", "environment", "params_sha256"):
        assert key in result
