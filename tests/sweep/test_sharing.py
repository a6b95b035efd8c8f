"""Two sweeps in one directory at the same time: both end well, and each trial runs once."""

import json
import sys
from collections import Counter
from pathlib import Path

import pytest
from support.killing import Driver, reader

from paftbench.cli.main import exit_code
from paftbench.store.directory import read_json, read_results, write_json

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="finds processes in /proc")

YAML = """
name: shared
base: {workload: {name: quadratic, dim: 50}, steps: 6, world_size: 2, eval_every: 3}
grids:
  - name: noise
    set: {faults: [{name: noise, model: gaussian_noise, degree: 0.1}]}
    axes: {faults.noise.degree: [0.1, 0.2]}
seeds: 2
"""
NEGATE = '''
from dataclasses import dataclass
from paftbench.faults import SparseFault

@dataclass(frozen=True, kw_only=True)
class Negate(SparseFault):
    """Change the sign of struck elements."""
    name = "negate"
    units = {"per_element": (0.0, 1.0)}
    unit: str = "per_element"

    def change(self, value_K, draws):
        return -value_K
'''


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "shared.yaml").write_text(YAML)
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / "all.behaviour").write_text(json.dumps({"sleep": 0.15}))
    return tmp_path / "shared"


def both(driver: Driver, root: Path, first: list[str], second: list[str]) -> Counter[str]:
    """Run two sweeps at once; how often each trial started."""
    (root / "starts.txt").unlink(missing_ok=True)
    arguments = ("run", root.parent / "shared.yaml", "--out", root.parent, "-j", "2")
    with reader(root):
        commands = [driver.start(*arguments, *flags) for flags in (first, second)]
        assert [command.wait() for command in commands] == [0, 0], [command.log.read_text() for command in commands]
    assert [path for path in root.rglob("*") if path.name.startswith(".")] == []
    starts = root / "starts.txt"
    return Counter(starts.read_text().split() if starts.exists() else [])


@pytest.mark.parametrize(
    "flag",
    ["--force", *(pytest.param(flag, marks=pytest.mark.slow) for flag in (None, "--retry-errors", "--rerun-stale"))],
)
def test_of_two_sweeps_one_runs_each_trial_whatever_one_of_them_repeats(
    driver: Driver, root: Path, flag: str | None
) -> None:
    starts = both(driver, root, [], [flag] if flag else [])
    assert len(starts) == 6 and set(starts.values()) == {1}
    assert all(record.result is not None for record in read_results(root))


@pytest.mark.parametrize(("flag", "again"), [("--force", 6), ("--retry-errors", 2), ("--rerun-stale", 3)])
def test_what_two_sweeps_both_repeat_is_repeated_once(driver: Driver, root: Path, flag: str, again: int) -> None:
    both(driver, root, [], [])
    ids = sorted(record.id for record in read_results(root))
    for id in ids[:2]:
        write_json(root / id / "result.json", {**read_json(root / id / "result.json"), "outcome": "error"})
    for id in ids[2:5]:
        write_json(root / id / "trial.json", {**read_json(root / id / "trial.json"), "sources": {"quadratic": "old"}})
    if flag != "--retry-errors":
        for id in ids[:2]:
            write_json(root / id / "result.json", {**read_json(root / id / "result.json"), "outcome": "masked"})
    starts = both(driver, root, [flag], [flag])
    assert set(starts.values()) == {1} and len(starts) == again
    assert both(driver, root, [], []) == Counter()


def test_a_changed_plugin_file_makes_its_trials_stale_and_only_they_run_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    experiment, plugin, root = tmp_path / "shared.yaml", tmp_path / "negate.py", tmp_path / "shared"
    experiment.write_text(YAML.replace("gaussian_noise", "negate"))
    plugin.write_text(NEGATE)
    arguments = ["run", str(experiment), "--plugin", str(plugin), "--out", str(tmp_path)]

    def ran(*more: str) -> tuple[int, str]:
        before = {record.id: (record.path / "result.json").stat().st_mtime_ns for record in read_results(root)}
        assert exit_code([*arguments, *more]) == 0
        after = {record.id: (record.path / "result.json").stat().st_mtime_ns for record in read_results(root)}
        return sum(before[id] != time for id, time in after.items()), capsys.readouterr().err

    assert exit_code(arguments) == 0
    capsys.readouterr()
    assert ran("--rerun-stale") == (0, "6 trials, 6 already done\n")
    plugin.write_text(NEGATE.replace("return -value_K", "return -2 * value_K"))
    changed, err = ran()
    assert changed == 0 and "4 of them are stale: a plugin has changed since; --rerun-stale runs them again" in err
    changed, err = ran("--rerun-stale")
    assert changed == 4 and err.startswith("6 trials, 2 already done\n")
    assert ran() == (0, "6 trials, 6 already done\n")
