"""What a sweep shows while it runs: a live table on a terminal, plain lines elsewhere; `status --follow` beside it."""

import io
import os
import pty
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console
from support.synthetic_results import RESNET, cell, golden, spec, write_trial
from support.warm import Popen, run

from paftbench.cli.progress import Progress
from paftbench.cli.status import rate_per_s, summary
from paftbench.store.claim import claim_path
from paftbench.store.directory import read_results, try_claim

COMMAND = [sys.executable, "-m", "paftbench.cli.main"]
SMALL = """
schema: 1
name: small
about: For tests.
cost: seconds
base: {workload: {name: quadratic, dim: 50}, steps: 6, world_size: 2, eval_every: 3}
axes: {mitigation: {ddp: {mitigations: []}, paft_sync: {mitigations: [{name: paft_sync, period: 2}]}}}
grids:
  - {name: noise, set: {faults: [{name: noise, model: gaussian_noise, degree: 0.1}]}}
seeds: 1
tolerance: 0.02
"""


def trial(grid: str, seed: int, processes: int = 1) -> Any:
    return SimpleNamespace(
        id=f"{grid}{seed}", grid=grid, name=f"{grid}/s{seed}", trial=SimpleNamespace(processes=processes)
    )


def ended(planned: Any, seconds: float, outcome: str = "masked", reason: str | None = None, by: str = "this") -> Any:
    log = Path("here/log.txt")
    return SimpleNamespace(planned=planned, outcome=outcome, reason=reason, seconds=seconds, log=log, by=by)


def text_of(progress: Progress) -> str:
    out = io.StringIO()
    Console(file=out, width=120, color_system=None).print(progress.table())
    return out.getvalue()


def test_the_time_left_knows_how_many_run_at_a_time_and_what_each_grid_takes() -> None:
    planned = [trial("short", i) for i in range(6)] + [trial("long", i) for i in range(4)]
    progress = Progress(planned, {item.id for item in planned}, slots=2)
    assert progress.seconds_left() is None
    progress.tell(ended(planned[0], 1.0))
    assert progress.seconds_left() == pytest.approx(9 * 1.0 / 2)  # nothing is known of the long ones yet
    progress.tell(ended(planned[6], 10.0))
    assert progress.seconds_left() == pytest.approx((5 * 1.0 + 3 * 10.0) / 2)
    progress.tell(ended(planned[1], 0.0, by="other"))  # no time of ours
    assert progress.seconds_left() == pytest.approx((4 * 1.0 + 3 * 10.0) / 2)


def test_trials_of_several_processes_take_several_slots() -> None:
    planned = [trial("torchrun", i, processes=4) for i in range(3)]
    progress = Progress(planned, {item.id for item in planned}, slots=2)
    progress.tell(ended(planned[0], 5.0))
    assert progress.seconds_left() == pytest.approx(2 * 5.0)


def test_the_table_has_a_row_per_grid_that_counts_what_was_done_before(capsys: pytest.CaptureFixture[str]) -> None:
    planned = [trial("golden", 0), trial("noise", 0), trial("noise", 1), trial("flips", 0)]
    progress = Progress(planned, {"noise1", "flips0"}, slots=1)
    progress.tell(ended(planned[2], 3.0, "degraded"))
    lines = text_of(progress).splitlines()
    assert re.match(r"golden .*1/1", lines[0]) and re.match(r"noise .*2/2 +1 degraded", lines[1])
    assert re.match(r"flips .*0/1", lines[2])
    assert lines[3].startswith("1 of 2 run in 0 s") and lines[3].rstrip().endswith("about 3 s left")
    assert lines[4].startswith("last: degraded") and "noise/s1" in lines[4]
    assert capsys.readouterr().err == "[1/2] degraded           3.0 s  noise/s1\n"


def test_what_another_sweep_ran_is_not_counted_as_run_by_this_one(capsys: pytest.CaptureFixture[str]) -> None:
    planned = [trial("noise", i) for i in range(8)]
    with Progress(planned, {item.id for item in planned}, slots=1) as progress:
        for i, by in enumerate(["this", "this", "other", "other", "other", "none", "this", "this"]):
            outcome = "error" if by == "none" else "masked"
            progress.tell(ended(planned[i], 1.0 if by == "this" else 0.0, outcome, "no golden run", by=by))
    lines = capsys.readouterr().err.splitlines()
    assert lines[-1] == "4 of 8 trials run in 0 s, 3 by another sweep, 1 not run"
    assert lines[2] == "[3/8] masked           (other)  noise/s2" and lines[0].endswith("1.0 s  noise/s0")


def test_a_failure_names_its_reason_and_log(capsys: pytest.CaptureFixture[str]) -> None:
    planned = [trial("noise", 0)]
    Progress(planned, {"noise0"}, slots=1).tell(ended(planned[0], 1.0, "crashed", "Traceback\nValueError: no"))
    assert capsys.readouterr().err == "[1/1] crashed            1.0 s  noise/s0: ValueError: no; see here/log.txt\n"


def test_a_sweep_of_many_grids_shows_those_that_are_not_done() -> None:
    planned = [trial(f"grid{i}", 0) for i in range(30)]
    progress = Progress(planned, {item.id for item in planned[5:]}, slots=1)
    lines = text_of(progress).splitlines()
    assert [line.split()[0] for line in lines[:12]] == [f"grid{i}" for i in range(5, 17)] and len(lines) == 13


@pytest.fixture
def small(tmp_path: Path) -> Path:
    path = tmp_path / "small.yaml"
    path.write_text(SMALL)
    return path


def on_terminal(arguments: list[str]) -> tuple[int, str]:
    """Exit code and everything that a command writes to a terminal of 100 columns."""
    master, slave = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100", "LINES": "40"}
    with Popen(
        [*COMMAND, *arguments], stdin=slave, stdout=slave, stderr=slave, env=environment, start_new_session=True
    ) as process:
        os.close(slave)
        written = b"".join(_read(master))
        code = process.wait(timeout=60)
    os.close(master)
    return code, written.decode()


def _read(master: int) -> Iterator[bytes]:
    while True:
        try:
            part = os.read(master, 65536)
        except OSError:  # the last writer has closed the terminal
            return
        if not part:
            return
        yield part


def test_a_terminal_gets_a_live_table_that_goes_when_the_sweep_is_done(small: Path, tmp_path: Path) -> None:
    code, written = on_terminal(["run", str(small), "--out", str(tmp_path / "runs"), "-j", "1"])
    assert code == 0, written
    assert "\x1b[?25l" in written and "\x1b[?25h" in written  # the cursor is hidden, and shown again
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", written)
    assert re.search(r"noise +━+.*[012]/2", plain) and re.search(r"[123] of 3 run in", plain)
    assert "[1/3]" not in plain and "3 of 3 trials run in" in plain
    assert plain.rstrip().endswith(str(tmp_path / "runs" / "small"))


def test_a_pipe_gets_a_line_per_trial_and_no_control_codes(small: Path, tmp_path: Path) -> None:
    command = [*COMMAND, "run", str(small), "--out", str(tmp_path / "runs"), "-j", "1"]
    done = run(command, capture_output=True, text=True, check=True, env={**os.environ, "TERM": "xterm"})
    assert "\x1b" not in done.stdout + done.stderr
    assert re.findall(r"^\[(\d)/3\]", done.stderr, re.MULTILINE) == ["1", "2", "3"]
    assert "3 of 3 trials run in" in done.stderr


def test_follow_watches_a_sweep_of_another_process_to_its_end(small: Path, tmp_path: Path) -> None:
    small.write_text(SMALL.replace("steps: 6", "steps: 200"))
    root = tmp_path / "runs" / "small"
    with Popen(
        [*COMMAND, "run", str(small), "--out", str(tmp_path / "runs"), "-j", "1"], stderr=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    ) as sweep:  # fmt: skip
        deadline = time.monotonic() + 60
        while len(list(root.glob("*/trial.json"))) < 3:
            assert time.monotonic() < deadline and sweep.poll() is None
            time.sleep(0.02)
        watched = run(
            [*COMMAND, "status", str(root), "--follow"], capture_output=True, text=True, check=True, timeout=60
        )
        assert sweep.wait(timeout=60) == 0
    blocks = watched.stdout.split("\n\n")
    assert "\x1b" not in watched.stdout and len(set(blocks)) == len(blocks)  # nothing is said twice
    assert blocks[-1].startswith("3 trials: 3 done, 0 running, 0 missing")


def test_follow_ends_on_ctrl_c_with_130(tmp_path: Path) -> None:
    cell(tmp_path, "ddp", [0.9, 0.9], outcome=None)
    command = [*COMMAND, "status", str(tmp_path), "--follow"]
    with Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "2 trials: 0 done, 0 running, 2 missing\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=30) == 130


def test_follow_shows_one_text_in_place_on_a_terminal(tmp_path: Path) -> None:
    golden(tmp_path, [0.9, 0.9])
    code, written = on_terminal(["status", str(tmp_path), "--follow"])
    assert code == 0 and "2 trials: 2 done, 0 running, 0 missing" in written


def finished_at(directory: Path, times: list[float]) -> list[Any]:
    """Records whose results were written at these times."""
    for seed, when in enumerate(times):
        own = spec(RESNET, steps=5, seed=seed, faults=[], mitigations=[])
        id = write_trial(directory, own, grid="golden", labels={"mitigation": "golden"})
        os.utime(directory / id / "result.json", (when, when))
    return read_results(directory)


def test_the_rate_is_that_of_the_sweep_that_runs_now(tmp_path: Path) -> None:
    at = time.time() - 100_000
    records = finished_at(tmp_path, [at, at + 1, at + 2, at + 50_000, at + 50_004, at + 50_004.1, at + 50_008])
    assert rate_per_s(records) == pytest.approx(3 / 8)


def test_a_slow_sweep_is_not_taken_for_one_that_paused(tmp_path: Path) -> None:
    at = time.time() - 100_000
    assert rate_per_s(finished_at(tmp_path, [at, at + 300, at + 600])) == pytest.approx(2 / 600)


@pytest.mark.parametrize("times", [[], [1e9], [1e9, 1e9]])
def test_no_rate_without_two_times(tmp_path: Path, times: list[float]) -> None:
    tmp_path.joinpath("sweep").mkdir()
    assert rate_per_s(finished_at(tmp_path / "sweep", times) if times else []) is None


def test_time_left_is_said_only_while_something_runs(tmp_path: Path) -> None:
    now = time.time()
    finished_at(tmp_path, [now - 20, now - 10, now])
    cell(tmp_path, "ddp", [0.9], outcome=None)
    assert summary(read_results(tmp_path)).splitlines()[1:] == [
        "outcomes: 3 masked", "grids: golden 3/3, noise 0/1", "rate: 6.0 trials a minute, nothing is running",
    ]  # fmt: skip
    unfinished = next(record for record in read_results(tmp_path) if record.result is None)
    claim = try_claim(unfinished.path)
    assert claim is not None
    try:
        assert summary(read_results(tmp_path)).splitlines()[0] == "4 trials: 3 done, 1 running, 0 missing"
        assert "about 10 s left" in summary(read_results(tmp_path))
        path = claim_path(unfinished.path)
        for age, told in (
            (-3600, "1 of them 1 h 0 min in the future by this clock"),
            (100, "1 of them 1 min 40 s old"),
        ):
            os.utime(path, (time.time() - age,) * 2)
            assert summary(read_results(tmp_path)).splitlines()[1].startswith(f"heartbeats: {told}")
    finally:
        claim.release()
