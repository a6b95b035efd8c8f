"""A sweep's trials on disk: what is known of them, and what is left of sweeps that were killed."""

import json
import multiprocessing
import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.whole_result import whole_result

from paftbench.experiment import plan
from paftbench.experiment.file import parse_experiment
from paftbench.store import files
from paftbench.store.claim import claim_path, is_claimed, try_claim
from paftbench.store.directory import Planned, read_json, write_json
from paftbench.store.plans import adopt, known_record, rerun_directory, state_of, tidy, write_plan
from paftbench.sweep.interrupt import deferred


@pytest.fixture
def planned() -> Planned:
    content = {"name": "small", "base": {"workload": {"name": "quadratic"}, "steps": 5}}
    return plan(parse_experiment(content, "small"))[0]


def finished(directory: Path, planned: Planned, **result: Any) -> Path:
    write_plan(directory, planned, None)
    write_json(directory / "result.json", whole_result(planned.spec(), **result))
    return directory


def ended_process() -> int:
    """The id of a process that has ended."""
    process = multiprocessing.get_context("spawn").Process(target=int)
    process.start()
    process.join()
    assert process.pid is not None
    return process.pid


def test_a_result_without_its_plan_and_another_trials_directory_are_refused(tmp_path: Path, planned: Planned) -> None:
    assert known_record(tmp_path / planned.id, planned) is None
    directory = finished(tmp_path / planned.id, planned)
    assert state_of(known_record(directory, planned), planned) == "done"
    with pytest.raises(ValueError, match=f"holds the trial {planned.id}; it was renamed or copied$"):
        known_record(directory, replace(planned, id="0" * 16))
    (directory / "trial.json").unlink()
    with pytest.raises(ValueError, match=r"is half a trial directory: it has result\.json and no trial\.json$"):
        known_record(directory, planned)


def test_a_plan_that_a_power_failure_blanked_is_made_again_and_a_torn_one_is_refused(
    tmp_path: Path, planned: Planned
) -> None:
    write_plan(tmp_path, planned, None)
    (tmp_path / "trial.json").write_bytes(b"\0" * 100)
    assert known_record(tmp_path, planned) is None
    write_plan(tmp_path, planned, None)
    (tmp_path / "trial.json").write_text((tmp_path / "trial.json").read_text()[:50])
    with pytest.raises(ValueError, match=r"trial\.json is not JSON"):
        known_record(tmp_path, planned)


@pytest.mark.parametrize("content", ["{}", '{"schema": 1}', "[]", '{"schema": 1, "outcome": "mas'])
def test_what_is_no_result_is_one_line(tmp_path: Path, planned: Planned, content: str) -> None:
    finished(tmp_path, planned)
    (tmp_path / "result.json").write_text(content)
    with pytest.raises(ValueError, match=r"result\.json"):
        known_record(tmp_path, planned)


def test_a_plan_is_written_once(tmp_path: Path, planned: Planned) -> None:
    finished(tmp_path, planned)
    before = (tmp_path / "trial.json").stat().st_mtime_ns
    write_plan(tmp_path, planned, known_record(tmp_path, planned))
    assert (tmp_path / "trial.json").stat().st_mtime_ns == before


def test_a_rerun_replaces_file_by_file_and_the_result_last(
    tmp_path: Path, planned: Planned, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = finished(tmp_path / planned.id, planned, mark="old")
    (directory / "failure.json").write_text("{}")
    rerun = finished(rerun_directory(directory, "mine"), planned, mark="new")
    (rerun / "steps.jsonl").write_text("")
    moved: list[str] = []
    real = os.replace

    def one_at_a_time(old: Path, new: Path) -> None:
        assert read_json(directory / "result.json")["mark"] == "old"
        moved.append(Path(new).name)
        real(old, new)
        if len(moved) == 1:
            raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", one_at_a_time)
    with pytest.raises(KeyboardInterrupt):
        adopt(rerun, directory)
    tidy(tmp_path)
    assert moved == ["trial.json", "steps.jsonl", "result.json"]
    assert read_json(directory / "result.json")["mark"] == "new"
    assert sorted(path.name for path in directory.iterdir()) == ["result.json", "steps.jsonl", "trial.json"]
    assert list(tmp_path.iterdir()) == [directory]


def test_tidying_removes_what_is_dead_and_leaves_what_is_alive(tmp_path: Path, planned: Planned) -> None:
    directory = finished(tmp_path / planned.id, planned)
    rerun_directory(directory, "mine").mkdir()
    (rerun_directory(directory, "mine") / "steps.jsonl").write_text("")
    held = try_claim(directory)
    assert held is not None
    tidy(tmp_path)
    assert rerun_directory(directory, "mine").is_dir() and is_claimed(directory)
    pid = ended_process()
    content = json.loads(claim_path(directory).read_text())
    claim_path(directory).write_text(json.dumps({**content, "pid": pid}))
    with files.replacing(directory / "trial.json") as temporary:
        alive = temporary.name
        temporary.write_text("{}")
        dead = directory / alive.replace(f".{os.getpid()}.", f".{pid}.")
        dead.write_text("{")
        owned = directory / alive.replace("trial.json", "result.json")
        owned.write_text("{}")
        tidy(tmp_path)
        # Any sweep may write a plan; results are the holder's, and what the last one had half-written is never renamed.
        assert temporary.is_file() and not dead.exists() and not owned.exists()
    assert list(tmp_path.iterdir()) == [directory]
    held.release()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_waits_for_the_end_of_the_block(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    reached = []
    with pytest.raises(KeyboardInterrupt), deferred() as interrupted:
        assert not interrupted()
        os.kill(os.getpid(), number)
        os.kill(os.getpid(), number)
        reached.append(interrupted())
    assert reached == [True] and signal.getsignal(number) == before


def test_a_signal_that_is_ignored_stays_so(monkeypatch: pytest.MonkeyPatch) -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with deferred() as interrupted:
            os.kill(os.getpid(), signal.SIGINT)
            assert not interrupted()
    finally:
        signal.signal(signal.SIGINT, before)
