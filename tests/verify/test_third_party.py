"""A fault model of another distribution: found by entry point, listed, verified, swept; planted defects are named."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.checkout import TESTS
from support.plugin_files import plugins_kept

from paftbench import installed
from paftbench.cli.main import exit_code
from paftbench.store.files import read_json, read_lines

SOURCE = TESTS / "third_party"

SWEEP = """
schema: 1
name: stuck
about: A fault model of another distribution.
cost: seconds
base: {workload: {name: quadratic, dim: 200}, steps: 4, world_size: 2, eval_every: 4}
grids:
  - name: stuck
    set: {faults: [{name: stuck, model: stuck_at, degree: 0, value: 3.0, ranks: [1]}]}
    axes: {faults.stuck.degree: [0.1, 0.2]}
golden: false
tolerance: 0.02
"""


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the distribution is installed, without a network."""
    folder = tmp_path_factory.mktemp("third_party")
    shutil.copytree(SOURCE, folder / "source")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--no-build-isolation"]
    subprocess.run([*pip, "--target", str(folder / "site"), str(folder / "source")], check=True)
    return folder / "site"


@pytest.fixture
def beside(target: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    """The distribution on the path, here and in the environment of child processes."""
    caches = (installed.registered, installed.load, installed.usable)
    monkeypatch.syspath_prepend(str(target))
    for cached in caches:
        cached.cache_clear()
    with plugins_kept():
        yield {**os.environ, "PYTHONPATH": str(target)}
    monkeypatch.undo()
    for cached in caches:
        cached.cache_clear()


def paftbench(environment: dict[str, str], folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "paftbench.cli.main", *arguments]
    return subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True)


def test_it_is_listed_with_its_distribution_and_runs_in_a_sweep(beside: dict[str, str], tmp_path: Path) -> None:
    listed = paftbench(beside, tmp_path, "ls", "fault-models", "--json")
    (entry,) = [entry for entry in json.loads(listed.stdout) if entry["name"] == "stuck_at"]
    assert entry["from"] == "paftbench-example-faults 0.2.0" and entry["file"].endswith("stuck_at.py")
    (tmp_path / "stuck.yaml").write_text(SWEEP)
    ran = paftbench(beside, tmp_path, "run", "stuck.yaml", "-j", "2")
    assert ran.returncode == 0, ran.stderr
    results = sorted((tmp_path / "results" / "runs" / "stuck").glob("*/result.json"))
    assert len(results) == 2
    for path in results:
        counts = read_json(path)["strikes"]
        assert counts["drawn"] == counts["landed"] == counts["changed"] > 0
        rows = list(read_lines(path.parent / "injections.jsonl"))
        assert {(row["rank"], row["value_after"]) for row in rows} == {(1, 3.0)}


def test_it_keeps_every_promise(beside: dict[str, str], target: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(["verify", str(target / "paftbench_example_faults" / "stuck_at.py")]) == 0
    out = capsys.readouterr().out
    assert out.startswith("fault model stuck_at (") and "  34 promises hold, 0 broken, 0 not tried" in out


@pytest.mark.parametrize(
    ("file", "promise", "got"),
    [
        (
            "uses_the_global_generator.py",
            "it neither uses nor moves a global random generator",
            "got torch moved (per_element, float32; 2 of 2 cases)",
        ),
        (
            "counts_wrongly.py",
            "the counts it reports are what really changed",
            "expected 561 elements reported at step 0 on rank 0, the number really changed, got 1119",
        ),
        (
            "skips_bfloat16.py",
            "every dtype it declares is really struck",
            "got none: the dtype is silently skipped (per_element, bfloat16; 1 of 2 cases)",
        ),
    ],
)
def test_a_planted_defect_fails_with_the_promise_that_it_breaks(
    beside: dict[str, str], capsys: pytest.CaptureFixture[str], file: str, promise: str, got: str
) -> None:
    assert exit_code(["verify", "--fast", str(SOURCE / "defects" / file)]) == 1
    (line,) = [line for line in capsys.readouterr().out.splitlines() if f"  BROKEN  {promise}: expected " in line]
    assert got in line
