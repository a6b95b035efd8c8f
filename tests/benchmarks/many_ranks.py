"""Trials of many virtual ranks, step by step; as a script, the peak memory of one: `many_ranks.py WORLD_SIZE`."""

import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

STEPS = 3


def stepping(world_size: int) -> Callable[[], None]:
    """A function that runs the next step of a noisy ResNet trial, synchronised every second step, measured at each."""
    from paftbench.training.loop import losses_of
    from paftbench.training.optimizers import set_lr
    from paftbench.trial import build_placement

    trial = _trial(world_size)
    placement = build_placement(trial, None)
    loss_of = losses_of(trial, placement)

    def step() -> None:
        number = placement.pipeline.step
        set_lr(placement.optimizer, 0.01)
        placement.pipeline.measuring = True
        placement.backward(lambda model, rank: loss_of(model, rank, number))
        placement.update()
        placement.pipeline.injector.drain()

    return step


def seconds(work: Callable[[], None], rounds: int) -> float:
    """Processor time, which others on the machine disturb less."""
    start = time.process_time()
    for _ in range(rounds):
        work()
    return time.process_time() - start


def peak_mb() -> float:
    """The most memory this process has had, in MB."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


def _trial(world_size: int) -> Any:
    from paftbench.records.trial import parse_trial

    spec = {
        "workload": {"name": "resnet"}, "world_size": world_size, "steps": STEPS, "eval_every": STEPS,
        "faults": [{"model": "gaussian_noise", "degree": 1e-3}], "mitigations": [{"name": "paft_sync", "period": 2}],
    }  # fmt: skip
    return parse_trial(spec).resolved(device="cpu")


def main() -> None:
    """A whole short trial: its peak, and what the process had before."""
    torch.set_num_threads(1)
    empty = peak_mb()
    from paftbench.training.loop import train
    from paftbench.training.recorder import Recorder
    from paftbench.trial import build_placement

    trial = _trial(int(sys.argv[1]))
    with tempfile.TemporaryDirectory() as folder:
        placement = build_placement(trial, None)
        recorder = Recorder(Path(folder), placement.replicas.ranks, ["gaussian_noise"])
        recorder.begin()
        train(trial, placement, recorder, start=0, save=lambda step: None)
    print(json.dumps({"empty": empty, "peak": peak_mb()}))


if __name__ == "__main__":
    main()
