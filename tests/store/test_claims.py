"""Who runs a trial: one process at a time, whatever the clocks of the machines say."""

import json
import multiprocessing
import os
import time
from pathlib import Path

import pytest

from paftbench.store import claim as claims
from paftbench.store import files
from paftbench.store.directory import claim, is_claimed, try_claim
from paftbench.store.lease import LostClaim, inherited
from paftbench.store.plans import tidy

HOUR = 3600.0


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Heartbeats are missed after a moment."""
    monkeypatch.setattr(claims, "STALE_S", 0.2)


def ended_process() -> int:
    """The id of a process that has ended."""
    process = multiprocessing.get_context("spawn").Process(target=int)
    process.start()
    process.join()
    assert process.pid is not None
    return process.pid


def elsewhere(directory: Path, beat: float) -> Path:
    """The claim of a process on another machine, its last heartbeat at a time of that machine's clock."""
    path = claims.claim_path(directory)
    path.write_text(json.dumps({"token": "theirs", "pid": 1, "machine": "another"}))
    os.utime(path, (beat, beat))
    return path


def test_a_claimed_trial_is_refused_to_others_until_released(tmp_path: Path) -> None:
    directory = tmp_path / "aa"
    held = try_claim(directory)
    assert held is not None
    assert try_claim(directory) is None and is_claimed(directory)
    with pytest.raises(ValueError, match=r"being run by another process; if that has ended, delete .*\.aa\.claim"):
        with claim(directory):
            pass
    held.release()
    assert not is_claimed(directory)
    with claim(directory):
        assert is_claimed(directory)


def test_a_heartbeat_keeps_a_claim_alive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claims, "HEARTBEAT_S", 0.02)
    with claim(tmp_path / "aa"):
        path = claims.claim_path(tmp_path / "aa")
        os.utime(path, (1, 1))
        deadline = time.monotonic() + 5
        while path.stat().st_mtime < 2 and time.monotonic() < deadline:
            time.sleep(0.01)
        assert path.stat().st_mtime > 2


@pytest.mark.parametrize("offset_s", [-HOUR, 0.0, HOUR, 10 * 365 * 24 * HOUR], ids=["behind", "same", "ahead", "years"])
def test_a_claim_whose_heartbeat_has_stopped_is_taken_over_whatever_its_holders_clock_says(
    tmp_path: Path, soon: None, offset_s: float
) -> None:
    directory = tmp_path / "aa"
    elsewhere(directory, time.time() + offset_s)
    assert try_claim(directory) is None  # one look does not tell a slow clock from a stopped heart
    time.sleep(0.1)
    assert try_claim(directory) is None
    time.sleep(0.15)
    held = try_claim(directory)
    assert held is not None and held.taken_over and held.lease.held()
    held.release()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("offset_s", [-HOUR, HOUR], ids=["behind", "ahead"])
def test_a_claim_whose_heart_beats_is_left_alone_whatever_its_holders_clock_says(
    tmp_path: Path, soon: None, offset_s: float
) -> None:
    directory = tmp_path / "aa"
    path = elsewhere(directory, time.time() + offset_s)
    for beat in range(8):
        os.utime(path, (time.time() + offset_s + beat,) * 2)
        assert try_claim(directory) is None and is_claimed(directory)
        time.sleep(0.05)
    for beat in range(8):  # the clock is set back meanwhile, which is a heartbeat, too
        os.utime(path, (time.time() + offset_s - 60 * beat,) * 2)
        assert try_claim(directory) is None
        time.sleep(0.05)


def test_who_was_stopped_looks_again_before_it_takes_a_trial_from_another_that_was_stopped_with_it(
    tmp_path: Path, soon: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere(tmp_path / "aa", time.time())
    assert try_claim(tmp_path / "aa") is None
    real = time.monotonic
    monkeypatch.setattr(time, "monotonic", lambda: real() + HOUR)
    assert try_claim(tmp_path / "aa") is None


def test_a_claim_that_was_taken_over_is_lost_to_its_old_holder(
    tmp_path: Path, soon: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = tmp_path / "aa"
    old = try_claim(directory)
    assert old is not None and not old.taken_over
    old.lease.check()
    assert try_claim(directory) is None
    time.sleep(0.15)
    assert try_claim(directory) is None
    time.sleep(0.1)
    new = try_claim(directory)
    assert new is not None and new.taken_over
    with pytest.raises(LostClaim):
        old.lease.check()
    old.release()
    assert new.lease.held() and is_claimed(directory)
    new.release()


def test_a_process_knows_the_lease_of_its_own_trial_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with claim(tmp_path / "aa") as held:
        assert inherited(tmp_path / "rerun") is None
        for name, value in held.lease.setting(tmp_path / "rerun").items():
            monkeypatch.setenv(name, value)
        assert inherited(tmp_path / "rerun") == held.lease
        assert inherited(tmp_path / "aa") is None


def _claim_and_die(directory: Path) -> None:
    try_claim(directory)
    os._exit(0)


def test_a_claim_of_a_dead_process_of_this_machine_is_free_at_once(tmp_path: Path) -> None:
    process = multiprocessing.get_context("spawn").Process(target=_claim_and_die, args=(tmp_path / "aa",))
    process.start()
    process.join()
    assert claims.claim_path(tmp_path / "aa").exists()
    held = try_claim(tmp_path / "aa")
    assert held is not None and held.taken_over
    held.release()


def test_a_claim_whose_holder_died_before_it_wrote_its_name_is_free_soon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claims, "HEARTBEAT_S", 0.05)
    claims.claim_path(tmp_path / "aa").write_text("")
    assert try_claim(tmp_path / "aa") is None
    time.sleep(0.1)
    held = try_claim(tmp_path / "aa")
    assert held is not None
    held.release()


def test_a_takeover_that_was_killed_blocks_nobody(tmp_path: Path) -> None:
    dead = json.dumps({"token": "x", "pid": ended_process(), "machine": files.machine()})
    for suffix in (".claim", ".takeover"):
        claims.claim_path(tmp_path / "aa").with_suffix(suffix).write_text(dead)
    assert try_claim(tmp_path / "aa") is None  # this call clears the way
    held = try_claim(tmp_path / "aa")
    assert held is not None
    held.release()
    tidy(tmp_path)
    assert list(tmp_path.iterdir()) == []
