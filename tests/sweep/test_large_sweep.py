"""Large sweeps: planning and re-running them costs seconds, of CPU, which a busy machine does not stretch.

The bounds are those of the design, 5 s and 3 s, with slack for slower processors.
"""

import time
from pathlib import Path

import pytest
from support import large_sweep

from paftbench.cli.main import exit_code
from paftbench.experiment import load, plan
from paftbench.store.directory import read_json, write_json


@pytest.mark.slow
def test_ten_thousand_trials_are_planned_in_seconds(tmp_path: Path) -> None:
    experiment = load(str(large_sweep.write_experiment(tmp_path / "large.yaml", degrees=50, seeds=50)))
    start = time.process_time()
    planned = plan(experiment)
    assert time.process_time() - start < 10
    assert len(planned) == len({item.id for item in planned}) == 4 * 50 * 50 + 50
    assert len({item.golden_id for item in planned if item.golden_id}) == 50


def test_a_finished_sweep_of_a_thousand_trials_runs_again_in_seconds_and_writes_nothing(tmp_path: Path) -> None:
    path = large_sweep.write_experiment(tmp_path / "large.yaml", degrees=25, seeds=10)
    planned = large_sweep.finish(path, tmp_path)
    before = {item: item.stat().st_mtime_ns for item in sorted(tmp_path.rglob("*"))}
    seconds, out, err = large_sweep.paftbench("run", path, "--out", tmp_path)
    assert seconds < 6
    assert f"{len(planned)} trials, {len(planned)} already done" in err and len(planned) == 1010
    assert (
        out.splitlines()[-1] == str(tmp_path / "large") and out.count("faults.noise.degree=") == 0 and "masked" in out
    )
    assert {item: item.stat().st_mtime_ns for item in sorted(tmp_path.rglob("*"))} == before


def test_a_plan_says_what_its_trials_will_take(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = large_sweep.write_experiment(tmp_path / "large.yaml", degrees=2, seeds=3)

    def listed(*arguments: str) -> tuple[str, str]:
        assert exit_code(["run", str(path), "--out", str(tmp_path), "-n", *arguments]) == 0
        return capsys.readouterr()

    out, err = listed("-j", "2")
    assert err == "27 trials to run; no time is predicted before one of the kind has finished\n"
    assert len(out.splitlines()) == 28
    (planned, *_) = plan(load(str(path)))
    large_sweep.finish_one(planned, tmp_path, 0.9)
    out, err = listed("-j", "2", "steps=100,200")
    # 2 s for 200 steps: 27 trials of 1 s and 26 of 2 s, two at a time.
    assert err == "53 trials to run, about 40 s with -j 2\n"
    assert [line.split()[-1] for line in out.splitlines()[1:]].count("1.0") == 27
    out, err = listed("-j", "2", "world_size=4,8")
    assert err == "53 trials to run, about 26 s with -j 2, without 27 of kinds that have not finished yet\n"
    result = tmp_path / "large" / planned.id / "result.json"
    write_json(result, {**read_json(result), "outcome": "error"})
    unknown = "no time is predicted before one of the kind has finished"
    assert listed("-j", "1", "-k", "golden")[1] == f"2 trials to run; {unknown}\n"
    assert listed("-j", "1", "-k", "golden", "--retry-errors")[1] == f"3 trials to run; {unknown}\n"
    write_json(result, {**read_json(result), "outcome": "nonfinite", "stopped_at": 50})
    # 2 s for the 50 steps before it was lost.
    assert listed("-j", "1", "-k", "golden")[1] == "2 trials to run, about 16 s with -j 1\n"
    large_sweep.finish(path, tmp_path)
    assert listed()[1] == "0 trials to run\n"
