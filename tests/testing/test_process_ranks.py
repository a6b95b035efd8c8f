"""Ranks as processes under torchrun: the same numbers as threads, and no process that outlives its test."""

import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any
from unittest import SkipTest

import pytest
import torch
import torch.distributed as dist
from torch import nn

import paftbench
from paftbench.process import has_ended
from paftbench.testing import FaultyRanks, RankError, RanksStuck

FLIPS = paftbench.Fault("bit_flip", degree=0.02, bits="mantissa")
SYNC = paftbench.Mitigation("paft_sync", period=5)
LIMIT_S = 100.0


def build() -> tuple[nn.Module, torch.optim.Optimizer]:
    model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Dropout(0.3), nn.ReLU(), nn.Linear(8, 1))
    return model, torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)


def train(ddp: Any, optimizer: torch.optim.Optimizer, steps: int = 12) -> Iterator[float]:
    for _ in range(steps):
        x = torch.randn(8, 6)
        loss = (ddp(x) - x.sum(1, keepdim=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss.item()
    print(f"rank {dist.get_rank()} trained")


def failing(ddp: Any, optimizer: torch.optim.Optimizer) -> Iterator[float]:
    yield from train(ddp, optimizer, 3)
    if dist.get_rank() == 1:
        raise KeyError("lost")
    yield from train(ddp, optimizer, 3)


def dying(ddp: Any, optimizer: torch.optim.Optimizer) -> Iterator[float]:
    yield from train(ddp, optimizer, 3)
    if dist.get_rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    yield from train(ddp, optimizer, 3)


def leaving(ddp: Any, optimizer: torch.optim.Optimizer) -> Iterator[float]:
    yield from train(ddp, optimizer, 3)
    if dist.get_rank() == 1:
        sys.exit(0)
    yield from train(ddp, optimizer, 3)


def skipping(ddp: Any, optimizer: torch.optim.Optimizer) -> None:
    pytest.skip("no data here")


def hanging(ddp: Any, optimizer: torch.optim.Optimizer) -> Iterator[float]:
    yield from train(ddp, optimizer, 3)
    while dist.get_rank() == 1:
        time.sleep(0.01)
    dist.barrier()


def processes(world_size: int = 2, limit_s: float = LIMIT_S) -> FaultyRanks:
    return FaultyRanks(world_size, ranks_as="torchrun", limit_s=limit_s)


def test_processes_give_the_bits_of_threads(capfd: pytest.CaptureFixture[str]) -> None:
    run, threads = (
        ranks.run(train, build, faults=[FLIPS], mitigations=[SYNC], exact=True)
        for ranks in (processes(), FaultyRanks(2))
    )
    run.assert_struck(at_least=10)
    assert run.curves == threads.curves and run.strikes_by_rank == threads.strikes_by_rank
    assert (run.divergence, run.syncs, run.extra_bytes) == (threads.divergence, threads.syncs, threads.extra_bytes)
    for mine, theirs in zip(run.outcomes, threads.outcomes, strict=True):
        assert all(torch.equal(mine.parameters[name], theirs.parameters[name]) for name in theirs.parameters)
    said = capfd.readouterr().out
    assert said.count("rank 0 trained") == said.count("rank 1 trained") == 2  # as processes, then as threads


def test_function_without_an_importable_name_is_refused_in_one_line() -> None:
    def inside(ddp: Any, optimizer: Any) -> list[float]:
        return [0.0]

    for function in (lambda ddp, optimizer: [0.0], inside, partial(inside)):
        with pytest.raises(
            ValueError, match=r"train must be a top-level function .* or use ranks_as='threads'"
        ) as caught:
            processes().run(function, build)
        assert "\n" not in str(caught.value)
    with pytest.raises(ValueError, match=r"build must be a top-level function"):
        processes().run(train, lambda: build())


@pytest.mark.slow
def test_rank_that_raises_is_named_with_its_traceback() -> None:
    with pytest.raises(
        RankError, match="rank 1 of 2 failed in train, after 3 completed steps: KeyError: 'lost'"
    ) as caught:
        processes().run(failing, partial(build))
    told = str(caught.value)
    assert "test_process_ranks.py" in told and 'raise KeyError("lost")' in told
    assert "rank 0 trained" in told and "SignalException" not in told


@pytest.mark.slow
def test_rank_that_dies_is_named_though_others_complain_first() -> None:
    with pytest.raises(RankError, match="rank 1 of 2 failed without a word: killed by SIGKILL"):
        processes().run(dying, build)


@pytest.mark.slow
def test_rank_that_leaves_is_named_though_others_complain_first() -> None:
    with pytest.raises(RankError, match="rank 1 of 2 failed in train, after 3 completed steps: SystemExit: 0"):
        processes().run(leaving, build)


@pytest.mark.slow
def test_skipped_in_a_rank_is_skipped() -> None:
    with pytest.raises(SkipTest, match="no data here"):  # which pytest takes for its own
        processes().run(skipping, build)


@pytest.mark.slow
def test_run_without_end_is_ended_at_the_limit() -> None:
    with pytest.raises(RanksStuck, match="took longer than limit_s=25") as caught:
        processes(limit_s=25.0).run(hanging, build)
    assert re.search(r"rank 0 is at test_process_ranks.py:\d+ in hanging", str(caught.value))
    assert re.search(r"rank 1 is at test_process_ranks.py:\d+ in hanging", str(caught.value))


PROJECT = """
import os
import time
from pathlib import Path

import torch.distributed as dist

from helper import build

def endless(ddp, optimizer):
    Path(f"pid{dist.get_rank()}").write_text(str(os.getpid()))
    while True:
        time.sleep(0.01)

def short(ddp, optimizer):
    from helper import step
    return [step(ddp, optimizer) for _ in range(5)]

def test_endless(faulty_ranks):
    faulty_ranks(2, ranks_as="torchrun").run(endless, build)

def test_one(faulty_ranks):
    faulty_ranks(2, ranks_as="torchrun").run(short, build).assert_replicas_agree()

def test_other(faulty_ranks):
    faulty_ranks(2, ranks_as="torchrun").run(short, build).assert_replicas_agree()

def test_threads(faulty_ranks):
    faulty_ranks(2).run(short, build).assert_replicas_agree()
"""
HELPER = """
import torch

def build():
    model = torch.nn.Linear(4, 1)
    return model, torch.optim.SGD(model.parameters(), lr=0.1)

def step(ddp, optimizer):
    loss = ddp(torch.randn(8, 4)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project whose tests lie apart from what they import, as `pythonpath` says."""
    (tmp_path / "tests").mkdir()
    (tmp_path / "source").mkdir()
    (tmp_path / "tests" / "test_ranks.py").write_text(PROJECT)
    (tmp_path / "source" / "helper.py").write_text(HELPER)
    (tmp_path / "pytest.ini").write_text("[pytest]\npythonpath = source\n")
    return tmp_path


def started(project: Path, *options: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *options],
        cwd=project,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def pids_of(project: Path) -> list[int]:
    """The ranks' process ids, once both run."""
    deadline = time.monotonic() + 90.0
    files = [project / f"pid{rank}" for rank in range(2)]
    while not all(file.exists() and file.read_text() for file in files):
        assert time.monotonic() < deadline, "the ranks did not start"
        time.sleep(0.05)
    return [int(file.read_text()) for file in files]


def all_end(pids: list[int]) -> bool:
    deadline = time.monotonic() + 15.0
    while not all(has_ended(pid) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.05)
    return all(has_ended(pid) for pid in pids)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_ranks_end_with_the_test_session(project: Path, number: int) -> None:
    session = started(project, "-k", "endless")
    pids = pids_of(project)
    session.send_signal(number)
    session.communicate(timeout=30)
    assert all_end(pids)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["signal", "thread"])
def test_ranks_end_when_pytest_timeout_ends_their_test(project: Path, method: str) -> None:
    session = started(project, "-k", "endless", "--timeout=30", f"--timeout-method={method}")
    pids = pids_of(project)
    said, _ = session.communicate(timeout=90)
    assert "Timeout" in said and session.returncode != 0
    assert all_end(pids)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["prepend", "importlib"])
def test_xdist_runs_them_side_by_side(project: Path, mode: str) -> None:
    session = started(project, "-k", "not endless", "-n", "2", f"--import-mode={mode}")
    said, _ = session.communicate(timeout=200)
    assert session.returncode == 0 and "3 passed" in said, said


@pytest.mark.slow
def test_module_that_only_its_file_can_give_is_found(tmp_path: Path) -> None:
    body = HELPER + textwrap.dedent(
        """
        from .beside import STEPS

        def train(ddp, optimizer):
            return [step(ddp, optimizer) for _ in range(STEPS)]

        def test_runs(faulty_ranks):
            assert len(faulty_ranks(2, ranks_as="torchrun").run(train, build).curve) == 3
        """
    )
    for folder in ("tests", "tests/unit"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "__init__.py").touch()
    (tmp_path / "tests/unit/beside.py").write_text("STEPS = 3\n")
    (tmp_path / "tests/unit/test_deep.py").write_text(body)
    for mode in ("prepend", "importlib"):
        session = started(tmp_path, f"--import-mode={mode}")
        said, _ = session.communicate(timeout=120)
        assert session.returncode == 0, said


SCRIPT = HELPER + textwrap.dedent(
    """
    from paftbench.testing import FaultyRanks

    def train(ddp, optimizer):
        return [step(ddp, optimizer) for _ in range(3)]

    if __name__ == "__main__":
        print(FaultyRanks(2, ranks_as="torchrun", limit_s=60).run(train, build).describe())
    """
)


@pytest.mark.slow
def test_script_that_starts_ranks_is_not_started_by_them(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    ran = subprocess.run([sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, timeout=100)
    assert ran.stdout.count("run: 2 ranks as torchrun, seed 0, 3 steps") == 1, ran.stdout + ran.stderr


@pytest.mark.slow
def test_function_of_an_interactive_session_is_refused_in_one_line(tmp_path: Path) -> None:
    ran = subprocess.run([sys.executable, "-c", SCRIPT], cwd=tmp_path, capture_output=True, text=True, timeout=100)
    assert ran.stderr.splitlines()[-1].startswith(
        "paftbench.errors.Refused: train must be a top-level function of a module"
    )
