"""A small experiment with an expectation, run in this process, and `paftbench check` on it."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from paftbench.analysis.runs import Sweep
from paftbench.cli.main import exit_code
from paftbench.experiment import load, plan
from paftbench.gate import sweep_of
from paftbench.store.directory import read_json, read_result, write_json, write_planned
from paftbench.trial import run_trial

YAML = """
name: small
base:
  {workload: {name: quadratic, dim: 200, noise: 0.5}, steps: 20, world_size: 2, eval_every: 2,
   optimizer: {name: sgd, lr: 0.1, momentum: 0, weight_decay: 0}}
grids:
  - name: noise
    set: {faults: [{name: noise, model: gaussian_noise, degree: 1}]}
    axes:
      mitigation:
        ddp: {mitigations: []}
        paft_sync: {mitigations: [{name: paft_sync, period: 2}]}
seeds: 3
averaging_limit: true
tolerance: 1
expect:
  - {where: {mitigation: paft_sync}, value: gap_closed, at_least: 0.3}
"""


def prepare(folder: Path) -> Path:
    """Write the experiment file, its trials beside it, and a baseline of them; the folder."""
    (folder / "small.yaml").write_text(YAML)
    run_all(folder)
    assert check(folder, "--baseline", folder / "b.json", "--update") == 0
    return folder


def run_all(folder: Path) -> None:
    """Every trial of the experiment in a folder, whether it has run or not."""
    for item in plan(load(str(folder / "small.yaml"))):
        directory = folder / "small" / item.id
        write_planned(directory, item)
        assert run_trial(directory) == 0


def copied(folder: Path, to: Path) -> Path:
    """A copy that a test may spoil."""
    return Path(shutil.copytree(folder, to / "copy"))


def check(folder: Path, *arguments: Any, run: bool = False) -> int:
    given = ["check", folder / "small.yaml", "--out", folder, *([] if run else ["--no-run"]), *arguments]
    return exit_code([str(argument) for argument in given])


def refused(capsys: pytest.CaptureFixture[str]) -> str:
    """The one line of an error of use, and nothing on stdout."""
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("paftbench: error: ") and err.count("\n") == 1, (out, err)
    return err


def changed(folder: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    content = read_json(folder / "b.json")
    change(content)
    write_json(folder / "b.json", content)


def spoil(folder: Path, name: str, change: Callable[[dict[str, Any]], Any]) -> None:
    """Change the results of the trials whose name contains `name`."""
    for path in (folder / "small").glob("*/result.json"):
        result = read_json(path)
        if name in result["name"]:
            change(result)
            write_json(path, result)


def sweep_in(folder: Path) -> Sweep:
    plans = [item.plan() for item in plan(load(str(folder / "small.yaml")))]
    results = {own.id: read_result(folder / "small" / own.id) for own in plans}
    return sweep_of(folder / "small", plans, results)
