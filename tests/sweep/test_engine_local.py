"""The local engine and the sweep on it: nothing is lost, nothing runs twice, nothing is left behind."""

import json
import multiprocessing
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest
from support.checkout import TESTS
from support.whole_result import whole_result

from paftbench.experiment import plan
from paftbench.experiment.file import parse_experiment
from paftbench.process import ending_of
from paftbench.records.result import StrikeCounts, Time
from paftbench.store.directory import Planned, read_json, read_results, try_claim, write_json
from paftbench.store.plans import known_record, state_of
from paftbench.sweep import postmortem, watch
from paftbench.sweep.engines.engine import Ending
from paftbench.sweep.engines.local import SERVER_LOST, LocalEngine
from paftbench.sweep.postmortem import Before
from paftbench.sweep.sweep import Execution, Finished, Policy

FAKE = "support.fake_trial:run"


@pytest.fixture
def planned() -> list[Planned]:
    """A golden run and two cells, one seed."""
    content = {
        "name": "fake",
        "base": {"workload": {"name": "quadratic"}, "steps": 5, "timeout_s": 60},
        "grids": [
            {
                "name": "noise",
                "set": {"faults": [{"name": "noise", "model": "gaussian_noise", "degree": 0.1}]},
                "axes": {"faults.noise.degree": [0.1, 0.2]},
            }
        ],
    }
    return plan(parse_experiment(content, "fake"))


@pytest.fixture
def engine() -> LocalEngine:
    return LocalEngine(2, target=FAKE)


def tell(root: Path, item: Planned, **behaviour: Any) -> None:
    """How the fake trial is to behave."""
    root.mkdir(parents=True, exist_ok=True)
    (root / f"{item.id}.behaviour").write_text(json.dumps(behaviour))


def run(root: Path, planned: list[Planned], engine: LocalEngine, policy: Policy | None = None) -> list[Finished]:
    ended: list[Finished] = []
    Execution(root=root, planned=planned, engine=engine, policy=policy or Policy(), report=ended.append).run()
    return ended


def state(root: Path, item: Planned) -> str:
    return state_of(known_record(root / item.id, item), item)


def starts(root: Path) -> list[str]:
    """Ids in the order in which trials started."""
    return (root / "starts.txt").read_text().split() if (root / "starts.txt").exists() else []


def test_the_golden_run_comes_before_those_it_judges_and_finished_trials_are_skipped(
    tmp_path: Path, planned: list[Planned], engine: LocalEngine
) -> None:
    ended = run(tmp_path, planned, engine)
    assert [item.outcome for item in ended] == ["masked"] * 3
    assert starts(tmp_path)[0] == planned[0].id and ended[0].planned.grid == "golden"
    assert run(tmp_path, planned, engine) == [] and len(starts(tmp_path)) == 3


def test_a_killed_worker_costs_only_its_trial(tmp_path: Path, planned: list[Planned], engine: LocalEngine) -> None:
    tell(tmp_path, planned[1], kill=True)
    outcomes = {item.planned.id: (item.outcome, item.reason) for item in run(tmp_path, planned, engine)}
    outcome, reason = outcomes.pop(planned[1].id)
    assert outcome == "error" and reason is not None and reason.startswith("killed by SIGKILL")
    assert {outcome for outcome, _ in outcomes.values()} == {"masked"} and len(outcomes) == 2


def test_a_death_after_a_strike_is_a_crash_and_before_any_an_error(
    tmp_path: Path, planned: list[Planned], engine: LocalEngine
) -> None:
    tell(tmp_path, planned[1], kill=True, steps=[{"step": 0, "strikes": 3}])
    tell(tmp_path, planned[2], failure={"strikes": 2, "reason": "ValueError: loss"})
    outcomes = {item.planned.id: item.outcome for item in run(tmp_path, planned, engine)}
    assert outcomes[planned[1].id] == outcomes[planned[2].id] == "crashed"
    assert read_json(tmp_path / planned[1].id / "result.json")["strikes"]["drawn"] == 3


def test_the_rank_that_a_signal_ended_is_named_as_torchrun_names_it(tmp_path: Path) -> None:
    words = "Root Cause (first observed failure):\n[0]:\n  rank      : 1 (local_rank: 1)\n  exitcode  : -9 (pid: 123)\n"
    (tmp_path / "log.txt").write_text(f"Traceback\n{words}")
    assert postmortem.postmortem_of(tmp_path, 1, Before()).reason == "rank 1 killed by SIGKILL, no result; see log.txt"
    (tmp_path / "log.txt").write_text("Traceback\n")
    assert postmortem.postmortem_of(tmp_path, 1, Before()).reason == "exit code 1, no result; see log.txt"


def test_a_trial_that_ends_with_its_fork_server_is_an_error_even_after_strikes(tmp_path: Path) -> None:
    (tmp_path / "steps.jsonl").write_text('{"step": 0, "strikes": 3}\n')
    found = postmortem.postmortem_of(tmp_path, SERVER_LOST, Before())
    assert found.outcome == "error" and found.reason.startswith("ended with the server that trials are forked from")
    assert postmortem.postmortem_of(tmp_path, -9, Before()).outcome == "crashed"


@pytest.mark.parametrize("code", [1, 74, 255])
def test_an_exit_code_of_the_users_is_read_as_theirs(
    tmp_path: Path, planned: list[Planned], engine: LocalEngine, code: int
) -> None:
    """74 and 255 once meant a full disk and a lost server: they ended the sweep, or an uncached error."""
    tell(tmp_path, planned[1], exit=code, steps=[{"step": 0, "strikes": 3}])
    outcomes = {item.planned.id: (item.outcome, item.reason) for item in run(tmp_path, planned, engine)}
    assert outcomes[planned[1].id] == ("crashed", f"exit code {code}, no result; see log.txt")
    assert outcomes[planned[2].id] == ("masked", None)


def test_running_out_of_memory_is_an_error_even_after_strikes(
    tmp_path: Path, planned: list[Planned], engine: LocalEngine
) -> None:
    reason = "torch.OutOfMemoryError: CUDA out of memory"
    tell(tmp_path, planned[1], failure={"strikes": 2, "part": "memory", "reason": reason})
    outcomes = {item.planned.id: item.outcome for item in run(tmp_path, planned[:2], engine)}
    assert outcomes[planned[1].id] == "error"


@pytest.mark.parametrize(
    ("steps", "outcome", "reason"),
    [
        ([{"step": 0, "strikes": 1}], "hung", "not finished after timeout_s = 0.5"),
        ([], "error", "not finished after timeout_s = 0.5, and not one step; see log.txt"),
    ],
    ids=["after a step", "before any"],
)
def test_a_trial_past_its_timeout_is_hung_if_it_ever_made_a_step_else_an_error(
    tmp_path: Path, planned: list[Planned], engine: LocalEngine, steps: list[Any], outcome: str, reason: str
) -> None:
    slow = replace(planned[0], trial=replace(planned[0].trial, timeout_s=0.5))
    tell(tmp_path, slow, sleep=60, steps=steps)
    (ended,) = run(tmp_path, [slow], engine)
    assert (ended.outcome, ended.reason) == (outcome, reason)


def test_rows_of_an_interrupted_run_are_no_steps_of_the_next(tmp_path: Path) -> None:
    (tmp_path / "steps.jsonl").write_text('{"step": 0, "strikes": 1}\n')
    watched = watch.Watch(tmp_path, 0.0, None)
    time.sleep(0.01)
    overdue = watched.overdue()
    assert overdue is not None and overdue.outcome == "error"
    assert postmortem.strikes_in(tmp_path, watched.before) == StrikeCounts()
    (tmp_path / "steps.jsonl").write_text('{"step": 0, "strikes": 1}\n{"step": 1, "strikes": 1}\n')
    overdue = watched.overdue()
    assert overdue is not None and overdue.outcome == "hung"
    assert postmortem.strikes_in(tmp_path, watched.before) == StrikeCounts(drawn=2)


def test_a_sweep_that_was_stopped_does_not_take_its_own_pause_for_a_hang(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched = watch.Watch(tmp_path, 60.0, Time(step_max_s=0.1, total_s=1.0))
    assert watched.overdue() is None
    real = time.monotonic
    monkeypatch.setattr(time, "monotonic", lambda: real() + 3600)
    assert watched.overdue() is None and watched.elapsed_s < 3


def test_a_trial_that_stops_stepping_is_hung_by_the_goldens_slowest_step(
    tmp_path: Path, planned: list[Planned], engine: LocalEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "HANG_FLOOR_S", 0.3)
    tell(tmp_path, planned[1], steps=[{"step": 0, "strikes": 1}], sleep=60)
    ended = {item.planned.id: item for item in run(tmp_path, planned[:2], engine)}
    assert ended[planned[1].id].outcome == "hung"
    assert "no step for" in str(ended[planned[1].id].reason)


def test_errors_run_again_only_when_asked_and_x_stops_at_the_first(
    tmp_path: Path, planned: list[Planned], engine: LocalEngine
) -> None:
    tell(tmp_path, planned[0], failure={"strikes": 0, "reason": "ValueError: ours"})
    assert len(run(tmp_path, planned, engine, Policy(stop_at_error=True))) == 1
    tell(tmp_path, planned[0])
    assert len(run(tmp_path, planned, engine)) == 2
    assert state(tmp_path, planned[0]) == "error"
    assert [item.outcome for item in run(tmp_path, planned, engine, Policy(retry_errors=True))] == ["masked"] * 3


def interrupt() -> NoReturn:
    raise KeyboardInterrupt


def test_force_keeps_the_old_result_until_the_new_one_is_there(
    tmp_path: Path, planned: list[Planned], engine: LocalEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(tmp_path, planned[:1], engine)
    tell(tmp_path, planned[0], sleep=60)
    old = read_json(tmp_path / planned[0].id / "result.json")
    sweep = Execution(root=tmp_path, planned=planned[:1], engine=engine, policy=Policy(force=True))

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(engine, "ended", interrupt)
        sweep.run()
    assert read_json(tmp_path / planned[0].id / "result.json") == old
    tell(tmp_path, planned[0], mark=1)
    assert len(run(tmp_path, planned[:1], engine, Policy(force=True))) == 1
    assert read_json(tmp_path / planned[0].id / "result.json")["mark"] == 1
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".")] == []


def test_a_changed_plugin_makes_a_result_stale_and_only_then_it_runs_again(
    tmp_path: Path, planned: list[Planned], engine: LocalEngine
) -> None:
    run(tmp_path, planned, engine)
    changed = [replace(item, sources={**item.sources, "quadratic": "0" * 64}) for item in planned[:1]] + planned[1:]
    assert state(tmp_path, changed[0]) == "stale"
    assert run(tmp_path, changed, engine) == []
    assert state(tmp_path, changed[0]) == "stale"
    assert [item.planned.id for item in run(tmp_path, changed, engine, Policy(rerun_stale=True))] == [changed[0].id]
    assert state(tmp_path, changed[0]) == "done"


def test_a_renamed_cell_keeps_its_result_under_the_new_name(
    tmp_path: Path, planned: list[Planned], engine: LocalEngine
) -> None:
    run(tmp_path, planned, engine)
    renamed = [replace(item, name=f"new/{item.name}") for item in planned]
    assert run(tmp_path, renamed, engine) == []
    assert all(record.planned.name.startswith("new/") for record in read_results(tmp_path))


def test_a_trial_claimed_by_another_sweep_is_waited_for_and_not_run_twice(
    tmp_path: Path, planned: list[Planned], engine: LocalEngine
) -> None:
    held = try_claim(tmp_path / planned[0].id) if tmp_path.exists() else None
    assert held is not None
    sweep = Execution(root=tmp_path, planned=planned[:1], engine=engine)
    ended, polls = engine.ended, 0

    def release_and_tell() -> list[tuple[Path, Ending]]:
        nonlocal polls
        polls += 1
        if polls == 3:
            assert starts(tmp_path) == []
            held.release()
        return ended()

    engine.ended = release_and_tell  # type: ignore[method-assign]
    sweep.run()
    assert starts(tmp_path) == [planned[0].id]


def test_a_trial_that_another_sweep_has_finished_meanwhile_is_told_as_that_ones(
    tmp_path: Path, planned: list[Planned], engine: LocalEngine
) -> None:
    held = try_claim(tmp_path / planned[0].id)
    assert held is not None
    told: list[Finished] = []
    sweep = Execution(root=tmp_path, planned=planned[:1], engine=engine, report=told.append)
    ended = engine.ended

    def finish_and_tell() -> list[tuple[Path, Ending]]:
        if not told and not (tmp_path / planned[0].id / "result.json").exists():
            write_json(tmp_path / planned[0].id / "result.json", whole_result(planned[0].spec()))
            held.release()
        return ended()

    engine.ended = finish_and_tell  # type: ignore[method-assign]
    sweep.run()
    assert [(finished.by, finished.outcome) for finished in told] == [("other", "masked")] and starts(tmp_path) == []


def test_a_sweep_that_was_prepared_runs_what_it_said_without_preparing_again(
    tmp_path: Path, planned: list[Planned], engine: LocalEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep = Execution(root=tmp_path, planned=planned, engine=engine)
    assert sweep.prepare() == len(planned)
    monkeypatch.setattr("paftbench.sweep.sweep.tidy", lambda root: pytest.fail("prepared twice"))
    sweep.run()
    assert set(starts(tmp_path)) == {item.id for item in planned}


def test_slots_are_shared_and_a_trial_larger_than_all_still_fits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = SimpleNamespace(poll=lambda: None)
    monkeypatch.setattr("paftbench.sweep.engines.local.start_ranks", lambda *_, **__: process)
    engine = LocalEngine(2)
    assert engine.fits(1) and engine.fits(2) and engine.fits(8)
    engine.start(tmp_path, 1, torchrun=True, setting={})
    assert engine.fits(1) and not engine.fits(2) and not engine.fits(8) and engine.ended() == []
    process.poll = lambda: 0
    assert engine.ended() == [(tmp_path, 0)] and engine.fits(8)
    with pytest.raises(ValueError, match=r"jobs .* must be >= 1, got 0"):
        LocalEngine(0)


SCRIPT = """
import sys
from pathlib import Path
from paftbench.sweep.engines.local import SERVER_LOST, LocalEngine
from paftbench.experiment import plan
from paftbench.experiment.file import load
from paftbench.sweep.sweep import Execution

if __name__ == "__main__":
    engine = LocalEngine(2, target="support.fake_trial:run")
    Execution(root=Path(sys.argv[2]), planned=plan(load(sys.argv[1])), engine=engine).run()
"""
YAML = """
name: fake
base: {workload: {name: quadratic}, steps: 5}
grids:
  - name: noise
    set: {faults: [{name: noise, model: gaussian_noise, degree: 0.1}]}
    axes: {faults.noise.degree: [0.1, 0.2, 0.3]}
"""


def sweep_process(tmp_path: Path) -> subprocess.Popen[bytes]:
    (tmp_path / "sweep.py").write_text(SCRIPT)
    (tmp_path / "fake.yaml").write_text(YAML)
    arguments = [sys.executable, str(tmp_path / "sweep.py"), str(tmp_path / "fake.yaml"), str(tmp_path / "runs")]
    marks = {"PYTHONPATH": os.pathsep.join([str(TESTS), *sys.path]), "PAFTBENCH_MARK": str(tmp_path)}
    return subprocess.Popen(arguments, env={**os.environ, **marks})


def processes_of(tmp_path: Path) -> list[int]:
    """Processes, the fork server among them, that a sweep under `tmp_path` started."""
    mark, found = f"PAFTBENCH_MARK={tmp_path}".encode(), []
    for entry in Path("/proc").iterdir():
        try:
            dead = entry.name.isdigit() and (entry / "stat").read_text().rpartition(")")[2].split()[0] == "Z"
            if entry.name.isdigit() and not dead and mark in (entry / "environ").read_bytes().split(b"\0"):
                found.append(int(entry.name))
        except OSError:
            continue
    return found


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the kernel's parent-death signal is Linux's")
def test_sigkill_of_a_sweep_leaves_no_process_behind(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "all.behaviour").write_text(json.dumps({"sleep": 120}))
    with sweep_process(tmp_path) as process:
        try:
            wait_until(lambda: len(starts(tmp_path / "runs")) > 0, 60)
            assert len(processes_of(tmp_path)) >= 3
        finally:
            process.kill()
    wait_until(lambda: processes_of(tmp_path) == [], 10)


def wait_until(holds: Any, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.05)


def test_a_workloads_own_workers_start_as_the_platform_starts_them(
    tmp_path: Path, planned: list[Planned], engine: LocalEngine
) -> None:
    """A `DataLoader(num_workers=2)` through the sweep's fork server took thirteen times as long."""
    run(tmp_path, planned[:1], engine)
    platforms = multiprocessing.get_context().get_start_method()
    assert (tmp_path / "start_method.txt").read_text() == platforms


def test_a_trial_whose_golden_run_failed_is_not_judged_without_it(
    tmp_path: Path, planned: list[Planned], engine: LocalEngine
) -> None:
    """Without a golden run every trial would pass for masked. --retry-errors runs both, the golden run first."""
    golden = planned[0]
    tell(tmp_path, golden, failure={"strikes": 0, "reason": "no"})
    ended = run(tmp_path, planned, engine)
    assert [finished.outcome for finished in ended] == ["error"] * 3
    assert ended[1].reason == f"not run: its golden run {golden.name} ended in error, nothing to judge it by"
    tell(tmp_path, golden)
    ended = run(tmp_path, planned, engine, Policy(retry_errors=True))
    assert ended[0].planned == golden
    assert [finished.outcome for finished in ended] == ["masked"] * 3


def test_an_exit_code_is_told_as_it_is_whatever_it_means_to_an_engine() -> None:
    assert [ending_of(code) for code in (0, 255, -9, -200)] == [
        "exit code 0", "exit code 255", "killed by SIGKILL", "killed by signal 200",
    ]  # fmt: skip
