"""Sweeps: planning, doing nothing again, two at a time, torchrun, bare compute, many ranks. See sweep_speed.py.

Seconds of a command are those of its quickest run: what others do on the machine only adds to them.
"""

import json
import subprocess
import sys
from pathlib import Path
from statistics import median
from typing import Any

import many_ranks
import sweep_speed
from support import large_sweep

from paftbench.experiment import load, plan


def test_ten_thousand_trials_are_planned_in_5_seconds(benchmark: Any, tmp_path: Path) -> None:
    experiment = load(str(large_sweep.write_experiment(tmp_path / "large.yaml", degrees=50, seeds=50)))
    planned = benchmark.pedantic(plan, args=(experiment,), rounds=5, iterations=1, warmup_rounds=1)
    assert len(planned) == 10_050 and benchmark.stats.stats.min < 5


def test_ten_thousand_trials_are_listed_in_8_seconds(benchmark: Any, tmp_path: Path) -> None:
    path = large_sweep.write_experiment(tmp_path / "large.yaml", degrees=50, seeds=50)
    arguments = ("run", path, "--out", tmp_path, "-n")
    benchmark.pedantic(large_sweep.paftbench, args=arguments, rounds=3, iterations=1)
    assert benchmark.stats.stats.min < 8


def test_a_finished_sweep_of_a_thousand_trials_runs_again_in_3_seconds(benchmark: Any, tmp_path: Path) -> None:
    path = large_sweep.write_experiment(tmp_path / "large.yaml", degrees=25, seeds=10)
    assert len(large_sweep.finish(path, tmp_path)) == 1010
    arguments = ("run", path, "--out", tmp_path)
    benchmark.pedantic(large_sweep.paftbench, args=arguments, rounds=5, iterations=1)
    assert benchmark.stats.stats.min < 3


def test_a_sweep_beats_torchrun_4_times_two_processes_beat_one_1_8_times(benchmark: Any) -> None:
    """Three torchrun trials and their golden runs stand for all: the whole grid takes sweep_speed.py ten minutes."""
    found = benchmark.pedantic(sweep_speed.measure, args=(3,), rounds=1, iterations=1)
    benchmark.extra_info.update(found)
    print(f"\n{sweep_speed.table(found)}")
    assert found["same_outcomes"]
    assert found["j2_over_j1"] >= 1.8
    assert found["torchrun_over_sweep"] >= 4
    assert found["share_of_bare_after_start_up"] >= 0.75


def test_a_rank_among_256_takes_the_time_of_one_among_4(benchmark: Any) -> None:
    """Steps of both in turn, in one process: processor time of a rank's step."""
    small, large = many_ranks.stepping(4), many_ranks.stepping(256)
    pairs = [(many_ranks.seconds(small, 64) / 4 / 64, many_ranks.seconds(large, 1) / 256) for _ in range(6)][1:]
    ratio = median(many for _, many in pairs) / median(few for few, _ in pairs)
    benchmark.extra_info.update(ratio=ratio, pairs=pairs)
    benchmark.pedantic(large, rounds=1, iterations=1)
    assert ratio <= 1.3


def test_a_rank_among_256_takes_the_memory_of_one_among_4(benchmark: Any) -> None:
    """Peak memory of a fresh process above what importing torch takes; and what each further rank adds."""

    def peak_mb(world_size: int) -> dict[str, float]:
        command = [sys.executable, many_ranks.__file__, str(world_size)]
        found: dict[str, float] = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
        return found

    few, some, many = (peak_mb(world_size) for world_size in (4, 64, 256))
    per_rank = {n: (found["peak"] - found["empty"]) / n for n, found in ((4, few), (256, many))}
    added = (some["peak"] - few["peak"]) / 60, (many["peak"] - some["peak"]) / 192
    benchmark.extra_info.update(per_rank_of_4=per_rank[4], per_rank_of_256=per_rank[256], each_further_rank=added)
    benchmark.pedantic(peak_mb, args=(4,), rounds=1, iterations=1)
    assert per_rank[256] <= 1.3 * per_rank[4]
    assert added[1] <= 1.3 * added[0]
