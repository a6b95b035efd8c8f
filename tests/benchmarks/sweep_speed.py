"""How fast a sweep is: against torchrun trial by trial, against bare compute, with one process and with two.

The whole measurement takes about ten minutes of an idle machine of two cores:

    python tests/benchmarks/sweep_speed.py --json FILE

prints a table in Markdown. `make bench` measures the same with fewer torchrun trials. Seconds are of one machine in one
run; the ratios are what counts. Shapes: W = ranks.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

CORES = 2
GRID = """
name: speed
about: 4 degrees x 3 mitigations x 2 seeds on ResNet nano, and their golden runs.
base: {workload: {name: resnet, size: nano, data: digits}, world_size: 4, batch_per_rank: 32, steps: 200}
grids:
  - name: noise
    set: {faults: [{name: noise, model: gaussian_noise, degree: 0, unit: std, site: result}]}
    axes:
      mitigation:
        ddp: {mitigations: []}
        paft_sync: {mitigations: [{name: paft_sync, period: 10}]}
        paft_dyn: {mitigations: [{name: paft_dyn, rule: code, period: 10, period_min: 2, period_max: 10}]}
      faults.noise.degree: [1.0e-3, 1.0e-2, 3.0e-2, 1.0e-1]
seeds: 2
tolerance: 0.02
"""


def sweep(folder: Path, jobs: int) -> tuple[float, float]:
    """Seconds of the whole command that runs the grid from nothing, and those before its first trial started.

    Its results are in FOLDER/speed.
    """
    path = folder / "speed.yaml"
    path.write_text(GRID)
    command = [sys.executable, "-m", "paftbench.cli.main", "run", str(path), "--out", str(folder), "-j", str(jobs)]
    began, start = time.time(), time.perf_counter()
    subprocess.run(command, check=True, capture_output=True)
    seconds = time.perf_counter() - start
    # A trial opens its log first thing, and writes nothing to it unless something goes wrong.
    first = min(log.stat().st_mtime for log in folder.glob("speed/*/log.txt"))
    return seconds, first - began


def launch(folder: Path, number: int | None = None) -> dict[str, float]:
    """The same trials, each by torchrun with 4 gloo processes, one after another: seconds by name.

    With metrics at every 50th step, as is the default there. `number`: that many, spread evenly, and their golden runs.
    """
    from paftbench.experiment import load, plan
    from paftbench.store.plans import write_plan

    (folder / "speed.yaml").write_text(GRID)
    planned = plan(load(str(folder / "speed.yaml")), ["placement=torchrun"])
    if number is not None:
        judged = [item for item in planned if item.golden_id]
        chosen = {judged[i * (len(judged) - 1) // max(1, number - 1)].id for i in range(number)}
        goldens = {item.golden_id for item in judged if item.id in chosen}
        planned = [item for item in planned if item.id in chosen | goldens]
    seconds = {}
    for item in planned:
        directory = folder / item.experiment / item.id
        write_plan(directory, item, None)
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "4"]
        start = time.perf_counter()
        command = [*torchrun, "-m", "paftbench.trial", str(directory)]
        subprocess.run(command, check=True, capture_output=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
        seconds[item.name] = time.perf_counter() - start
    return seconds


def bare_seconds(steps: int) -> float:
    """Seconds that one trial's forward and backward passes and updates take in a plain loop, on each of two cores.

    W models, each with its own optimizer, on batches taken before; nothing is struck, measured, evaluated or written.
    """
    children = [
        subprocess.Popen(
            [sys.executable, __file__, "--bare", str(steps)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        for _ in range(CORES)
    ]
    for child in children:
        assert child.stdout is not None and child.stdout.readline() == "ready\n"
    answers = []
    for child in children:
        assert child.stdin is not None
        child.stdin.write("go\n")
        child.stdin.flush()
    for child in children:
        answers.append(float(child.communicate()[0]))
    return sum(answers) / len(answers)


def bare_loop(steps: int) -> None:
    """The plain loop, in a process of its own: starts at a word on stdin, prints its seconds."""
    import torch

    from paftbench.workloads.resnet import ResNet

    torch.set_num_threads(1)
    workload, world_size, batch = ResNet(), 4, 32
    models = [workload.model() for _ in range(world_size)]
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4) for m in models]
    shards = [workload.shard(rank, world_size, batch, 0) for rank in range(world_size)]
    batches = [[shard.batch(step) for shard in shards] for step in range(steps)]

    def loop(steps: int) -> float:
        start = time.perf_counter()
        for step in range(steps):
            for model, optimizer, batch in zip(models, optimizers, batches[step], strict=True):
                optimizer.zero_grad()
                workload.loss(model, batch).backward()
                optimizer.step()
        return time.perf_counter() - start

    loop(min(steps, 5))
    print("ready", flush=True)
    sys.stdin.readline()
    print(loop(steps), flush=True)


def outcomes(root: Path) -> dict[str, tuple[str, float]]:
    """Outcome and the worst rank's accuracy by name."""
    from paftbench.store.directory import read_results

    records = [record for record in read_results(root) if record.result is not None]
    return {r.planned.name: (r.result.outcome, r.result.metric.worst_rank) for r in records if r.result}


def measure(torchrun_trials: int | None = None) -> dict[str, Any]:
    """Every number of the table; `torchrun_trials`: so many besides their golden runs, the others at the median."""
    with tempfile.TemporaryDirectory() as name:
        one, two, launched = (Path(name) / part for part in ("one", "two", "launched"))
        for folder in (one, two, launched):
            folder.mkdir()
        bare = [bare_seconds(200)]
        two_s, start_s = sweep(two, 2)
        bare.append(bare_seconds(200))
        one_s, _ = sweep(one, 1)
        cells = launch(launched, torchrun_trials)
        swept, by_torchrun = outcomes(two / "speed"), outcomes(launched / "speed")
    trials = len(swept)
    bare_s = sum(bare) / len(bare) * trials / CORES
    torchrun_s = sum(cells.values()) if len(cells) == trials else median(cells.values()) * trials
    return {
        "trials": trials,
        "sweep_j1_s": one_s,
        "sweep_j2_s": two_s,
        "start_up_s": start_s,
        "j2_over_j1": one_s / two_s,
        "torchrun_trials": len(cells),
        "torchrun_trial_s": median(cells.values()),
        "torchrun_s": torchrun_s,
        "torchrun_over_sweep": torchrun_s / two_s,
        "same_outcomes": all(swept[name][0] == outcome for name, (outcome, _) in by_torchrun.items()),
        "accuracy_difference": max(abs(swept[name][1] - metric) for name, (_, metric) in by_torchrun.items()),
        "bare_trial_s": sum(bare) / len(bare),
        "bare_s": bare_s,
        "share_of_bare": bare_s / two_s,
        "share_of_bare_after_start_up": bare_s / (two_s - start_s),
    }


def table(found: dict[str, Any]) -> str:
    """The numbers as Markdown."""
    part = f"{found['torchrun_trials']} of {found['trials']} trials, scaled to all"
    how = "every trial" if found["torchrun_trials"] == found["trials"] else part
    rows: Sequence[tuple[str, str]] = [
        ("trials (golden runs included)", f"{found['trials']}"),
        ("`paftbench run -j 2`, start-up included", f"{found['sweep_j2_s']:.1f} s"),
        ("of this before the first trial", f"{found['start_up_s']:.1f} s"),
        ("`paftbench run -j 1`", f"{found['sweep_j1_s']:.1f} s"),
        ("`-j 2` against `-j 1`", f"{found['j2_over_j1']:.2f} x"),
        (f"torchrun, 4 gloo processes, one trial after another ({how})", f"{found['torchrun_s']:.1f} s"),
        ("one trial under torchrun, median", f"{found['torchrun_trial_s']:.1f} s"),
        ("the sweep against torchrun", f"{found['torchrun_over_sweep']:.2f} x"),
        ("same outcomes", "yes" if found["same_outcomes"] else "no"),
        ("largest difference of accuracy, worst rank (sums in another order)", f"{found['accuracy_difference']:.4f}"),
        ("bare compute of one trial, two at a time", f"{found['bare_trial_s']:.2f} s"),
        ("bare compute of all trials on 2 cores", f"{found['bare_s']:.1f} s"),
        ("share of bare compute reached", f"{found['share_of_bare']:.0%}"),
        ("the same from the first trial's start on", f"{found['share_of_bare_after_start_up']:.0%}"),
    ]
    return "\n".join(["| measured | |", "|---|---|", *(f"| {what} | {value} |" for what, value in rows)])


def main() -> None:
    parser = argparse.ArgumentParser(description="Sweep speed on this machine, as a table in Markdown.")
    parser.add_argument("--torchrun-trials", type=int, help="so many besides the golden runs (default: all)")
    parser.add_argument("--json", type=Path, help="also write the numbers here")
    parser.add_argument("--bare", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.bare is not None:
        bare_loop(given.bare)
        return
    found = measure(given.torchrun_trials)
    print(table(found))
    if given.json is not None:
        given.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
