"""A trial that goes on from a checkpoint has every row of before, or starts over; it never passes for whole."""

import os
from pathlib import Path
from typing import Any

import pytest
from support import resumed
from support.small_trial import EVERY, STEPS, planned

from paftbench.resilience.shelf import Shelf, verified
from paftbench.store.files import read_lines
from paftbench.store.rows import Extent, RowFile, RowsLost
from paftbench.sweep.postmortem import Before, postmortem_of
from paftbench.trial import run_trial


@pytest.fixture
def interrupted(tmp_path: Path) -> Path:
    """A trial that was ended between its second checkpoint and its last step."""
    item = planned(tmp_path / "aa")
    assert not resumed.run(item, tmp_path / "aa", until=2 * EVERY + 3)
    return tmp_path / "aa"


@pytest.fixture
def whole(tmp_path: Path) -> dict[str, Any]:
    """What the trial leaves when nothing interrupts it."""
    planned(tmp_path / "whole" / "aa")
    assert run_trial(tmp_path / "whole" / "aa") == 0
    return resumed.written(tmp_path / "whole" / "aa")


def cut(path: Path, keep: float) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * keep)])


def test_an_interrupted_trial_goes_on_and_ends_as_if_it_had_not_been(interrupted: Path, whole: dict[str, Any]) -> None:
    assert resumed.run(planned(interrupted), interrupted)
    assert resumed.written(interrupted) == whole


@pytest.mark.parametrize("name", ["steps.jsonl", "injections.jsonl"])
@pytest.mark.parametrize("damage", ["cut", "empty", "gone", "altered", "not JSON"])
def test_rows_missing_before_the_checkpoint_start_the_trial_over(
    interrupted: Path, whole: dict[str, Any], name: str, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = interrupted / name
    if damage == "gone":
        path.unlink()
    elif damage == "altered":
        path.write_bytes(path.read_bytes().replace(b'"step":1,', b'"step":9,'))
    elif damage == "not JSON":
        path.write_bytes(b"x" + path.read_bytes()[1:])
    else:
        cut(path, 0.3 if damage == "cut" else 0.0)
    assert not resumed.run(planned(interrupted), interrupted)
    assert f"starting over: {path} lacks rows" in caplog.text
    assert resumed.written(interrupted) == whole
    assert whole["result"]["strikes"]["landed"] == STEPS * 2 * 20


def test_a_torn_last_row_after_the_checkpoint_costs_nothing(interrupted: Path, whole: dict[str, Any]) -> None:
    with (interrupted / "steps.jsonl").open("ab") as file:
        file.write(b'{"step": 19, "los')
    assert resumed.run(planned(interrupted), interrupted)
    assert resumed.written(interrupted) == whole


def test_a_checkpoint_is_never_ahead_of_its_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a power failure would have it: what was not synced when the mark was written may be lost."""
    synced: dict[str, int] = {}
    real = RowFile.sync

    def sync(self: RowFile) -> None:
        real(self)
        synced[self.path.name] = self.extent.bytes

    monkeypatch.setattr(RowFile, "sync", sync)
    item = planned(tmp_path / "aa")
    resumed.run(item, tmp_path / "aa", until=2 * EVERY + 3)
    (newest,) = Shelf(folder=tmp_path / "aa" / "checkpoints").newest_first()
    rows = verified(newest.path).more["rows"]
    assert {name: extent["bytes"] for name, extent in rows.items()} == synced
    assert len(list(read_lines(tmp_path / "aa" / "steps.jsonl"))) >= newest.step == 2 * EVERY


@pytest.mark.parametrize("damage", ["rows are a directory", "manifest", "no manifest of ours", "share", "no share"])
def test_what_cannot_be_read_at_resume_is_an_error_that_names_the_file_and_a_second_run_starts_over(
    interrupted: Path, whole: dict[str, Any], damage: str
) -> None:
    folder = interrupted / "checkpoints" / str(2 * EVERY)
    path = share = folder / "ranks-from-0.safetensors"
    if damage == "rows are a directory":
        path = interrupted / "injections.jsonl"
        path.unlink()
        path.mkdir()
    elif damage in ("manifest", "no manifest of ours"):
        path = folder / "manifest.json"
        path.write_text('{"step": 16' if damage == "manifest" else '{"step": 16}')
    elif damage == "share":
        cut(path, 0.5)
    else:
        path.unlink()
    assert run_trial(interrupted) == 1
    found = postmortem_of(interrupted, 1, Before.of(interrupted))
    named = path.name if path == share and damage == "no share" else str(path)
    assert found.outcome == "error" and named in found.reason
    if damage != "rows are a directory":
        assert folder.with_name(f"{folder.name}.bad").is_dir()
        assert run_trial(interrupted) == 0 and resumed.written(interrupted) == whole


def test_rows_that_somebody_changes_while_the_trial_runs_are_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "steps.jsonl"
    for damage in ("removed", "replaced", "cut"):
        rows = RowFile(path)
        rows.append([{"step": 0}])
        rows.sync()
        if damage == "cut":
            os.truncate(path, 3)
        else:
            path.unlink()
        if damage == "replaced":
            path.write_text('{"step":0}\n')
        with pytest.raises(RowsLost):
            rows.sync()
        rows.close()


def test_rows_go_on_where_an_extent_ends(tmp_path: Path) -> None:
    first = RowFile(tmp_path / "rows.jsonl")
    first.append([{"step": step} for step in range(3)])
    extent = first.extent
    first.append([{"step": 3}])
    second = RowFile(tmp_path / "rows.jsonl", extent)
    assert second.extent == extent
    second.append([{"step": 30}])
    first.append([{"step": 4}])  # goes with the file that was replaced
    assert [row["step"] for row in read_lines(tmp_path / "rows.jsonl")] == [0, 1, 2, 30]
    with pytest.raises(RowsLost, match="has 45 of 999 bytes"):
        RowFile(tmp_path / "rows.jsonl", Extent(bytes=999, sha256=""))
    for rows in (first, second):
        rows.close()
