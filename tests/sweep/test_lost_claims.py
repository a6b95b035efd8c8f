"""A trial whose claim was taken over while it was stopped: what it does afterwards does not count."""

import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.killing import Driver
from support.small_trial import EVERY, files_of, planned
from support.whole_result import whole_result

from paftbench import trial
from paftbench.experiment import load, plan
from paftbench.plugins import load_file
from paftbench.store import claim as claims
from paftbench.store.directory import Planned, claim, try_claim
from paftbench.store.files import read_json, read_lines, replacing
from paftbench.store.lease import LostClaim
from paftbench.store.plans import adopt, rerun_directory, settle
from paftbench.sweep.engines.engine import Ending
from paftbench.sweep.engines.local import LocalEngine
from paftbench.sweep.sweep import Execution, Policy
from paftbench.training.recorder import Recorder
from paftbench.trial import run_trial

STEPS = 150
YAML = f"""
name: stopped
base:
  workload: {{name: quadratic, dim: 20}}
  steps: {STEPS}
  world_size: 2
  eval_every: 10
  measure_every: 1
  checkpoint: {{every: 25}}
grids:
  - name: noise
    set: {{faults: [{{name: noise, model: gaussian_noise, degree: 0.1}}]}}
golden: false
"""
WORKLOAD = """
import time
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from paftbench.workloads.quadratic import Quadratic


@dataclass(frozen=True, kw_only=True)
class Dawdling(Quadratic):
    name: ClassVar[str] = "dawdling"

    def loss(self, model, batch):
        time.sleep(0.02 if (Path(__file__).parent / "slow").exists() else 0)
        return super().loss(model, batch)
"""


def stolen(path: Path) -> None:
    """As another process that takes the claim over."""
    path.write_text(json.dumps({"token": "theirs", "pid": os.getpid(), "machine": claims.machine()}))


@pytest.mark.parametrize(
    "force",
    [pytest.param(False, id="first"), pytest.param(True, id="again", marks=pytest.mark.slow)],  # a minute each
)
def test_a_sweep_that_was_stopped_for_long_changes_nothing_of_what_another_has_finished(
    driver: Driver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, force: bool
) -> None:
    """SIGSTOP to a sweep and its trial, a second sweep takes the trial over and ends, SIGCONT to the first."""
    path, root, plugin = tmp_path / "stopped.yaml", tmp_path / "stopped", tmp_path / "dawdling.py"
    path.write_text(YAML.replace("quadratic", "dawdling"))
    plugin.write_text(WORKLOAD)
    load_file(plugin)
    (item,) = plan(load(str(path)), plugins=[plugin])
    policy = Policy(force=force)
    if force:
        engine = LocalEngine(1)
        Execution(root=root, planned=[item], engine=engine).run()
    (tmp_path / "slow").touch()
    command = driver.start("run", path, "--out", tmp_path, "--plugin", plugin, *["--force"] * force, trials="real")
    pattern = f".rerun-{item.id}.*/steps.jsonl" if force else f"{item.id}/steps.jsonl"
    wait_until(lambda: any(found.read_bytes().count(b"\n") > 30 for found in root.glob(pattern)), 120)
    os.killpg(command.pid, signal.SIGSTOP)
    (tmp_path / "slow").unlink()
    try:
        monkeypatch.setattr(claims, "STALE_S", 0.5)
        ended: list[str] = []
        engine = LocalEngine(1)
        second = Execution(root=root, planned=[item], engine=engine, policy=policy)
        second.report = lambda finished: ended.append(finished.outcome)
        second.run()
        assert ended == ["masked"]
        before = files_of(root)
        assert len(list(read_lines(root / item.id / "steps.jsonl"))) == STEPS
    finally:
        os.killpg(command.pid, signal.SIGCONT)
    assert command.wait() == 0, command.log.read_text()
    after = files_of(root)
    log = f"{item.id}/log.txt"  # what a process prints is its own
    assert {**after, log: b""} == {**before, log: b""}
    assert "error" not in command.log.read_text()


def wait_until(holds: Callable[[], bool], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.02)


@pytest.mark.parametrize(
    ("owner", "name", "calls"),
    [
        (Recorder, "begin", 0), (Recorder, "step", 1), (Recorder, "step", EVERY + 1), (Recorder, "extents", 0),
        (trial, "summary", 0),
    ],
    ids=["at the start", "after a step", "after a checkpoint", "in a checkpoint", "before the result"],
)  # fmt: skip
@pytest.mark.parametrize("error", [None, ValueError("odd")], ids=["goes on", "fails"])
def test_a_trial_that_has_lost_its_claim_writes_nothing_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, calls: int, error: Exception | None
) -> None:
    directory, count, before = tmp_path / "aa", 0, dict[str, bytes]()
    real = getattr(owner, name)

    def called(*arguments: Any, **options: Any) -> Any:
        nonlocal count
        count += 1
        if count == calls + 1:
            stolen(held.lease.claim)
            before.update(files_of(directory))
            if error is not None:
                raise error
        return real(*arguments, **options)

    planned(directory)
    with claim(directory) as held:
        monkeypatch.setattr(owner, name, called)
        assert run_trial(directory, held.lease) == 1
    shares = {path: content for path, content in files_of(directory).items() if path not in before}
    assert count > calls and not shares
    assert {path: content for path, content in files_of(directory).items() if path in before} == before
    assert not (directory / "result.json").exists() and not (directory / "failure.json").exists()


def test_a_write_that_was_cut_short_before_its_rename_finds_nothing_to_rename(tmp_path: Path) -> None:
    """The holder is stopped between its last look at the claim and the rename, where no look helps."""
    directory = tmp_path / "aa"
    planned(directory)
    (directory / "result.json").write_text("theirs")
    with claim(directory) as held:
        with pytest.raises(FileNotFoundError), replacing(directory / "result.json", check=held.lease.check) as name:
            name.write_text("ours")
            settle(directory)
        with pytest.raises(LostClaim), replacing(directory / "result.json", check=held.lease.check) as name:
            name.write_text("ours")
            stolen(held.lease.claim)
    assert (directory / "result.json").read_text() == "theirs"
    assert [path.name for path in directory.iterdir() if path.name.startswith(".")] == []


def test_a_rerun_of_a_lost_claim_is_another_directory_than_the_new_holders(tmp_path: Path) -> None:
    directory = tmp_path / "aa"
    planned(directory)
    for token in ("old", "new"):
        planned(rerun_directory(directory, token))
        (rerun_directory(directory, token) / "result.json").write_text(token)
    settle(directory)
    assert list(tmp_path.glob(".rerun-*")) == []
    adopt(rerun_directory(directory, "old"), directory)  # what is gone replaces nothing
    assert (directory / "result.json").exists() and (directory / "trial.json").exists()


@pytest.fixture
def item(tmp_path: Path) -> Planned:
    (tmp_path / "stopped.yaml").write_text(YAML)
    (found,) = plan(load(str(tmp_path / "stopped.yaml")))
    return found


@pytest.mark.parametrize("ending", [{"sleep": 60}, {"exit": 3, "sleep": 0.5}, {"sleep": 0.5}], ids=str)
def test_a_sweep_whose_trial_was_taken_over_records_nothing_and_waits_for_the_other(
    tmp_path: Path, item: Planned, monkeypatch: pytest.MonkeyPatch, ending: dict[str, Any]
) -> None:
    monkeypatch.setattr(claims, "HEARTBEAT_S", 0.05)
    root = tmp_path / "runs"
    root.mkdir()
    (root / f"{item.id}.behaviour").write_text(json.dumps(ending))
    told: list[tuple[str, str | None]] = []
    engine = LocalEngine(1, target="support.fake_trial:run")
    sweep = Execution(root=root, planned=[item], engine=engine)
    sweep.report = lambda finished: told.append((finished.outcome, finished.reason))
    ended, path, polls = engine.ended, claims.claim_path(root / item.id), 0

    def told_of() -> list[tuple[Path, Ending]]:
        nonlocal polls
        assert told == [] or polls >= 60
        if (root / "starts.txt").exists():
            polls += 1
            if polls == 1:
                stolen(path)
            elif polls == 60:
                # Meanwhile the other has finished.
                result = whole_result(item.spec(), outcome="degraded", mark="theirs")
                (root / item.id / "result.json").write_text(json.dumps(result))
                path.unlink()
        return ended()

    engine.ended = told_of  # type: ignore[method-assign]
    sweep.run()
    assert told == [("degraded", None)]
    assert read_json(root / item.id / "result.json")["mark"] == "theirs"
    assert [found.name for found in root.iterdir() if found.name.startswith(".")] == []


def test_a_trial_that_is_run_by_hand_claims_its_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = tmp_path / "aa"
    planned(directory)
    monkeypatch.setattr(trial, "die_with_parent", lambda: None)
    monkeypatch.setattr("sys.argv", ["paftbench.trial", str(directory)])
    held = try_claim(directory)
    assert held is not None
    before = files_of(directory)
    assert trial.main() == 2 and files_of(directory) == before
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"paftbench: error: trial {directory} is being run by another process")
    held.release()
    monkeypatch.setattr(Recorder, "close", lambda self: claims.try_claim(directory) is None or pytest.fail("unclaimed"))
    assert trial.main() == 0
    assert list(tmp_path.iterdir()) == [directory]
