"""Why a trial ended, and whose doing it was: the training's under its strikes, or ours or the machine's."""

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from paftbench.fault_models.gaussian_noise import GaussianNoise
from support.small_trial import planned

from paftbench import trial
from paftbench.cli.main import exit_code
from paftbench.mitigations.paft_sync import PaftSync
from paftbench.step import pipeline
from paftbench.store.directory import read_results
from paftbench.store.files import read_json
from paftbench.store.rows import RowFile
from paftbench.sweep import postmortem
from paftbench.sweep.postmortem import Before, postmortem_of
from paftbench.training import checkpoint
from paftbench.training.ours import part_of
from paftbench.training.virtual import Virtual
from paftbench.trial import run_trial
from paftbench.workloads.quadratic import BowlShard, Quadratic


def after(calls: int, real: Callable[..., Any], error: Exception) -> Callable[..., Any]:
    """A function that raises from so many calls on."""
    count = 0

    def called(*arguments: Any, **options: Any) -> Any:
        nonlocal count
        count += 1
        if count > calls:
            raise error
        return real(*arguments, **options)

    return called


def outcome(directory: Path, **fields: Any) -> tuple[str, str]:
    planned(directory, **fields)
    assert run_trial(directory) == 1 and not (directory / "result.json").exists()
    found = postmortem_of(directory, 1, Before())
    assert found.strikes.landed > 0
    return found.outcome, found.reason


SLIP = ValueError("a slip")
PLACES = {
    "fault": (GaussianNoise, "change", SLIP),
    "mitigation, at a step": (PaftSync, "on_step", SLIP),
    "mitigation, at a checkpoint": (PaftSync, "pending", SLIP),
    "aggregation": (Virtual, "_aggregate", SLIP),
    "measuring": (pipeline, "spread", SLIP),
    "records, rows": (RowFile, "append", SLIP),
    "records, checkpoint": (checkpoint, "save", SLIP),
    "records, result": (trial, "summary", SLIP),
    "memory of Python": (Quadratic, "loss", MemoryError()),
    "memory of torch": (Quadratic, "loss", RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried")),
    "memory of the accelerator": (Quadratic, "loss", torch.OutOfMemoryError("CUDA out of memory")),
    "the machine": (BowlShard, "batch", OSError(errno.EIO, "Input/output error")),
}


@pytest.mark.parametrize(("owner", "name", "error"), PLACES.values(), ids=list(PLACES))
def test_what_is_raised_by_ours_or_the_machine_is_an_error_even_after_strikes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, error: Exception
) -> None:
    calls = {"save": 0, "summary": 0, "pending": 0, "append": 4}.get(name, 9)
    monkeypatch.setattr(owner, name, after(calls, getattr(owner, name), error))
    found, reason = outcome(tmp_path / "aa")
    assert found == "error" and type(error).__name__ in reason


@pytest.mark.parametrize("name", ["loss", "evaluate"])
def test_what_the_training_raises_after_a_strike_is_a_crash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(Quadratic, name, after(5, getattr(Quadratic, name), ValueError("loss\nis\nodd")))
    assert outcome(tmp_path / "aa") == ("crashed", "ValueError: loss is odd")


def test_what_the_training_raises_before_any_strike_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Quadratic, "loss", after(0, Quadratic.loss, ValueError("at once")))
    planned(tmp_path / "aa")
    assert run_trial(tmp_path / "aa") == 1
    found = postmortem_of(tmp_path / "aa", 1, Before())
    assert (found.outcome, found.reason, found.strikes.landed) == ("error", "ValueError: at once", 0)


def test_a_word_about_memory_in_a_users_message_is_no_lack_of_memory(tmp_path: Path) -> None:
    assert part_of(ValueError("ran out of memory slots")) is None
    try:
        raise ValueError("the batch failed") from RuntimeError("DefaultCPUAllocator: can't allocate memory")
    except ValueError as error:
        assert part_of(error) == "memory"


def test_a_lost_peer_says_nothing_of_the_part_that_waited_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = RuntimeError("[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:538] Connection closed by peer")
    monkeypatch.setattr(pipeline, "spread", after(9, pipeline.spread, gone))
    found, reason = outcome(tmp_path / "aa")
    assert found == "crashed" and "Connection closed by peer" in reason


def test_a_rank_that_a_signal_ended_is_the_cause_of_what_the_others_say(tmp_path: Path) -> None:
    (tmp_path / "steps.jsonl").write_text('{"step": 0, "strikes": 3}\n')
    (tmp_path / "failure.json").write_text('{"strikes": 0, "part": "measuring", "reason": "RuntimeError: gone"}')
    words = "Root Cause (first observed failure):\n[0]:\n  rank      : 1 (local_rank: 1)\n  exitcode  : -11 (pid: 9)\n"
    (tmp_path / "log.txt").write_text(words)
    found = postmortem_of(tmp_path, 1, Before())
    assert (found.outcome, found.reason) == ("crashed", "rank 1 killed by SIGSEGV, no result; see log.txt")


@pytest.mark.parametrize(("kills", "outcome"), [(3, "crashed"), (4, "error")])
def test_a_process_that_the_kernel_killed_for_its_memory_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kills: int, outcome: str
) -> None:
    vmstat = tmp_path / "vmstat"
    monkeypatch.setattr(postmortem, "_VMSTAT", vmstat)
    vmstat.write_text("nr_free_pages 5\noom_kill 3\n")
    before = Before.of(tmp_path)
    (tmp_path / "steps.jsonl").write_text('{"step": 0, "strikes": 3}\n')
    vmstat.write_text(f"nr_free_pages 1\noom_kill {kills}\n")
    assert postmortem_of(tmp_path, -9, before).outcome == outcome
    assert postmortem_of(tmp_path, -11, before).outcome == "crashed"
    vmstat.unlink()
    assert postmortem_of(tmp_path, -9, Before.of(tmp_path / "nothing")).outcome == "crashed"


def test_rows_that_cannot_be_read_are_an_error_that_names_the_file(tmp_path: Path) -> None:
    (tmp_path / "steps.jsonl").write_text('{"step": 0, "strikes": 3}\nnot JSON\n{}\n')
    found = postmortem_of(tmp_path, 1, Before())
    assert found.outcome == "error" and "steps.jsonl, line 2, is not JSON" in found.reason


def test_a_full_disk_is_told_by_a_rename_which_needs_no_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: Any, **options: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Quadratic, "loss", after(5, Quadratic.loss, ValueError("odd")))
    monkeypatch.setattr(trial, "write_json", full)
    planned(tmp_path / "aa")
    (tmp_path / "aa" / ".full.json").write_text('{"part": "disk full"}')
    assert run_trial(tmp_path / "aa") == 1
    assert read_json(tmp_path / "aa" / "failure.json") == {"part": "disk full"}
    with pytest.raises(OSError, match="No space left"):
        postmortem_of(tmp_path / "aa", 1, Before())


def test_a_users_own_words_of_a_full_disk_stop_no_sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Quadratic, "loss", after(5, Quadratic.loss, ValueError("No space left on device")))
    assert outcome(tmp_path / "aa") == ("crashed", "ValueError: No space left on device")


SLIPPING = """
from dataclasses import dataclass
from typing import ClassVar

from paftbench.mitigations import Mitigation


@dataclass(frozen=True, kw_only=True)
class Slipping(Mitigation):
    name: ClassVar[str] = "slipping"
    moment: str = "on_step"

    def on_gradients(self, step):
        if self.moment == "on_gradients" and step.index == 5:
            raise ValueError("a slip")

    def on_step(self, step):
        if self.moment == "on_step" and step.index == 5:
            raise ValueError("a slip")
"""
TORCHRUN = """
name: slipping
base:
  workload: {name: quadratic, dim: 20}
  world_size: 2
  steps: 10
  placement: torchrun
  faults: [{name: noise, model: gaussian_noise, degree: 0.1}]
grids:
  - name: one
    axes:
      mitigation:
        early: {mitigations: [{name: slipping, moment: on_gradients}]}
        late: {mitigations: [{name: slipping, moment: on_step}]}
golden: false
"""


@pytest.mark.slow
def test_a_mitigation_that_fails_inside_ddps_backward_is_an_error_too(tmp_path: Path) -> None:
    (tmp_path / "slipping.py").write_text(SLIPPING)
    (tmp_path / "slipping.yaml").write_text(TORCHRUN)
    plugin = ["--plugin", str(tmp_path / "slipping.py")]
    assert exit_code(["run", str(tmp_path / "slipping.yaml"), "--out", str(tmp_path), *plugin]) == 1
    results = [record.result for record in read_results(tmp_path / "slipping")]
    assert [result and result.outcome for result in results] == ["error"] * 2
    assert all(result and (result.reason or "").startswith("ValueError: a slip") for result in results)
