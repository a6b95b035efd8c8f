"""How fast a sweep is: `make speed`, about 8 minutes on 2 idle cores.

24 trials {ResNet nano, batch 32, 200 steps} x {4 degrees} x {ddp, paft_sync, paft_dyn} x {2 seeds}, W = 4: as a sweep
with `-j 1` and `-j 2`, and each launched by torchrun with 4 gloo processes, one after another, which is what one would
do by hand (one seed of the two, counted twice). Beside them the bare compute: forward, backward and optimizer of the
same models in a plain loop, two at a time. Prints a table; `--to FILE` also writes JSON.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from torch import nn

from paftbench.config import OptimizerConfig
from paftbench.files import write_json
from paftbench.optimizers import optimizer_of
from paftbench.store import read_results
from paftbench.workloads.resnet import ResNet

EXPERIMENT = """
schema: 1
name: speed
base:
  workload: {name: resnet, size: nano, data: digits}
  world_size: 4
  batch_per_rank: 32
  steps: 200
  lr_schedule: {name: linear}
  eval_every: 100
  measure_every: 50
  faults: [{name: noise, model: gaussian_noise, degree: 0, site: result}]
axes:
  faults.noise.degree: [1.0e-4, 1.0e-3, 1.0e-2, 1.0e-1]
  mitigation:
    ddp: {mitigations: []}
    paft_sync: {mitigations: [{name: paft_sync, period: 10}]}
    paft_dyn: {mitigations: [{name: paft_dyn}]}
seeds: 2
golden: false
"""
TRIALS, STEPS, WORLD = 24, 200, 4


def swept(folder: Path, name: str, *arguments: str) -> tuple[float, dict[str, Any]]:
    """Wall seconds of a whole `paftbench run`, and the results by name."""
    path = folder / "speed.yaml"
    path.write_text(EXPERIMENT)
    command = [sys.executable, "-m", "paftbench.cli.main", "run", str(path), "--out", str(folder / name), *arguments]
    start = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True)
    seconds = time.perf_counter() - start
    return seconds, {r.planned["name"]: r.result for r in read_results(folder / name / "speed")}


def bare(seed: int) -> float:
    """Seconds of a trial's arithmetic: W models, each with its own optimizer, no averaging and nothing recorded."""
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    workload = ResNet()
    models = [workload.model() for _ in range(WORLD)]
    optimizers = [optimizer_of(OptimizerConfig())(list(model.parameters())) for model in models]
    shards = [workload.shard(rank, WORLD, 32, seed) for rank in range(WORLD)]

    def step(model: nn.Module, optimizer: torch.optim.Optimizer, batch: Any) -> None:
        optimizer.zero_grad(set_to_none=True)
        workload.loss(model, batch).backward()
        optimizer.step()

    start = time.perf_counter()
    for index in range(STEPS):
        for model, optimizer, shard in zip(models, optimizers, shards, strict=True):
            step(model, optimizer, shard.batch(index))
    return time.perf_counter() - start


def measured() -> dict[str, Any]:
    """Every number, in seconds, and the ratios that matter."""
    with tempfile.TemporaryDirectory() as name, ProcessPoolExecutor(2, get_context("spawn")) as pool:
        folder = Path(name)
        computing = list(pool.map(bare, range(6)))
        two, sweep = swept(folder, "two", "-j", "2")
        one, _ = swept(folder, "one", "-j", "1")
        by_hand, launched = swept(folder, "torchrun", "-j", "1", "placement=torchrun", "seeds=1")
    different = [name for name, result in launched.items() if result["outcome"] != sweep[name]["outcome"]]
    compute = TRIALS * sum(computing) / len(computing) / 2
    return {
        "trials": TRIALS,
        "cores": len(os.sched_getaffinity(0)),
        "torchrun_s": 2 * by_hand,
        "sweep_j1_s": one,
        "sweep_j2_s": two,
        "bare_compute_j2_s": compute,
        "faster_than_torchrun": 2 * by_hand / two,
        "j2_over_j1": one / two,
        "share_of_bare_compute": compute / two,
        "different_outcomes": different,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--to", type=Path)
    to: Path | None = parser.parse_args().to
    found = measured()
    print("| what | value |\n|---|---|")
    for key, value in found.items():
        print(f"| {key} | {f'{value:.2f}' if isinstance(value, float) else value} |")
    if to is not None:
        write_json(to, found)


if __name__ == "__main__":
    main()
