"""Kills at random moments: nothing that has finished is lost or read half-written, nothing is left behind.

The fast tier kills sweeps of fake trials under the real engine, from a warm process; the slow one real trials too.
"""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from support.killing import Command, Driver, kill, launchers, ranks, reader, servers, trackers, workers

from paftbench.experiment import load, plan
from paftbench.store.directory import read_results

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="finds processes in /proc, as Linux has it"
)

YAML = """
name: killed
base: {workload: {name: quadratic, dim: 50}, steps: 40, world_size: 2, eval_every: 20}
grids:
  - name: noise
    set: {faults: [{name: noise, model: gaussian_noise, degree: 0.1}]}
    axes: {faults.noise.degree: [0.1, 0.2, 0.3]}
seeds: 2
"""
TARGETS = ("sweep", "ctrl-c", "terminate", "worker", "server", "tracker")


def strike(command: Command, target: str) -> bool:
    """Kill what is meant; False where the command has ended before it could be hit."""
    if not command.runs():
        return False
    if target == "sweep":
        os.kill(command.pid, signal.SIGKILL)
    elif target == "ctrl-c":
        os.killpg(command.pid, signal.SIGINT)
    elif target == "terminate":
        os.kill(command.pid, signal.SIGTERM)
    else:
        process = command.first({"worker": workers, "server": servers, "tracker": trackers}[target])
        return process is not None and kill(process)
    return True


def survive(driver: Driver, folder: Path, *, kills: int, seed: int, trials: str, delay_s: float) -> None:
    """Run a sweep under kills until there were enough of them, then to its end, and look at what is there."""
    path, root = folder / "killed.yaml", folder / "killed"
    path.write_text(YAML)
    arguments = ("run", path, "--out", folder, "-j", "2")
    chance, hits = random.Random(seed), 0
    with reader(root) as passes:
        for attempt in range(3 * kills):
            policy = chance.choice(("--retry-errors", "--force"))
            target = TARGETS[attempt % len(TARGETS)]
            command = driver.start(*arguments, policy, trials=trials)
            time.sleep(chance.uniform(0, delay_s))
            hit = strike(command, target)
            code = command.wait()
            hits += hit
            if hit and target == "sweep":
                assert code == -signal.SIGKILL
            else:
                # Signals may also meet a command that ends, or one that has started nothing yet.
                assert code in (0, 1, 130, -signal.SIGINT, -signal.SIGTERM), command.log.read_text()
            if hits == kills:
                break
        assert hits == kills
        last = driver.start(*arguments, "--retry-errors", trials=trials)
        assert last.wait() == 0, last.log.read_text()
    assert len(passes) > kills
    complete(path, root)


def complete(path: Path, root: Path) -> None:
    """Every trial is there exactly once, and nothing else."""
    records = read_results(root)
    assert [record.id for record in records] == [record.path.name for record in records]
    assert sorted(record.id for record in records) == sorted(item.id for item in plan(load(str(path))))
    assert all(record.result is not None and record.result.outcome != "error" for record in records)
    assert [item for item in root.rglob("*") if item.name.startswith(".")] == []


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2, 3))])
def test_a_sweep_survives_kills_of_any_of_its_processes(driver: Driver, tmp_path: Path, seed: int) -> None:
    behave(tmp_path / "killed", sleep=0.05)
    survive(driver, tmp_path, kills=6, seed=seed, trials="fake", delay_s=0.6)


@pytest.mark.slow
def test_a_sweep_of_real_trials_survives_kills_of_any_of_its_processes(driver: Driver, tmp_path: Path) -> None:
    survive(driver, tmp_path, kills=12, seed=4, trials="real", delay_s=3.0)


@pytest.mark.slow
@pytest.mark.parametrize("target", ["rank", "launcher", "sweep"])
@pytest.mark.parametrize("delay_s", [0.0, 2.0, 6.0], ids=str)
def test_a_kill_among_the_processes_of_torchrun_leaves_none_of_them(
    driver: Driver, tmp_path: Path, target: str, delay_s: float
) -> None:
    """At once when the ranks appear, while they import; later, while they meet; at last, while they train."""
    path, root = tmp_path / "killed.yaml", tmp_path / "killed"
    path.write_text(YAML.replace("steps: 40", "steps: 2000, placement: torchrun"))
    with reader(root):
        command = driver.start("run", path, "--out", tmp_path, "-j", "2", "-k", "golden/s0", trials="real")
        first = command.first(ranks)
        assert first is not None
        time.sleep(delay_s)
        if target == "sweep":
            os.kill(command.pid, signal.SIGKILL)
            assert command.wait() == -signal.SIGKILL
            return
        struck = first if target == "rank" else command.first(launchers)
        hit = struck is not None and kill(struck)
        code = command.wait()
    (record,) = read_results(root)
    assert record.result is not None and code == (record.result.outcome == "error")
    assert not hit or "killed by SIGKILL" in (record.result.reason or "")


def test_a_process_whose_parent_ended_before_it_asked_ends_too() -> None:
    code = "from paftbench.process import die_with_parent; die_with_parent(); print('lives')"
    for parent, lives in ((os.getpid(), True), (2**22 + 1, False)):
        environment = {**os.environ, "PAFTBENCH_PARENT": str(parent)}
        done = subprocess.run(
            [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
        )
        assert (done.stdout == "lives\n", done.returncode) == (lives, 0 if lives else 1)


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small disk needs root")
@pytest.mark.parametrize("seed", [7])
def test_a_sweep_survives_a_disk_that_fills_up(driver: Driver, tmp_path: Path, seed: int) -> None:
    disk, chance = tmp_path / "disk", random.Random(seed)
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", str(disk)]
    if not shutil.which("mount") or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("this system does not let us mount a small disk")
    try:
        path, root, codes = tmp_path / "killed.yaml", disk / "killed", []
        path.write_text(YAML)
        behave(root, sleep=0.05)
        with reader(root):
            for _ in range(4):
                command = driver.start("run", path, "--out", disk, "-j", "2", "--force")
                time.sleep(chance.uniform(0.1, 0.6))
                fill(disk / "filler")
                codes.append(command.wait())
                (disk / "filler").unlink()
                if codes[-1] == 2:
                    assert command.log.read_text().splitlines()[-1].startswith("paftbench: error: No space left")
            assert 2 in codes and set(codes) <= {0, 2}
            assert driver.start("run", path, "--out", disk, "-j", "2").wait() == 0
        complete(path, root)
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def fill(path: Path) -> None:
    """Leave no room on a disk."""
    with pytest.raises(OSError), path.open("wb") as filler:
        while True:
            filler.write(b"0" * 4096)
            filler.flush()


def behave(root: Path, **behaviour: Any) -> None:
    """What the fake trials of a sweep directory do."""
    root.mkdir()
    (root / "all.behaviour").write_text(json.dumps(behaviour))
