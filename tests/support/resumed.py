"""Trials that are interrupted and continued, in any placement."""

from pathlib import Path
from typing import Any

import torch.distributed as dist

import paftbench
from paftbench import trial as trial_module
from paftbench.records.trial import CheckpointConfig, OptimizerConfig, Trial
from paftbench.store.directory import INJECTIONS, RESULT, STEPS, Planned
from paftbench.store.files import read_json, read_lines
from paftbench.training.recorder import Recorder
from paftbench.workloads.contract import DataId
from paftbench.workloads.resnet import ResNet
from support.small_workloads import AwkwardGpt2

STEPS_IN_ALL, EVERY, LAST = 12, 4, 9
SYNCS = {
    "resnet": paftbench.Mitigation("paft_sync", period=EVERY, overlap=True, state="all"),
    "gpt2": paftbench.Mitigation(
        "paft_dyn", rule="consensus", period=2, period_min=1, period_max=3, overlap=True, state="all"
    ),
}


class Interrupted(Exception):
    """What ends a trial early."""


def planned(model: str, world_size: int, *, procs: int | None) -> Planned:
    """A trial whose state lives in many places: pasts, a synchronisation under way, random states, moments."""
    faults = (
        paftbench.Fault("stale_shard", name="stale", degree=0.5, delay=2, schedule={"kind": "probability", "p": 0.7}),
        paftbench.Fault("bit_flip", name="sent", degree=1e-4, bits="mantissa", site="contribution"),
        paftbench.Fault("gaussian_noise", name="noise", degree=1e-3, ranks={"random": 1}),
        paftbench.Fault("stale_shard", name="lost", degree=0.1, delay=3, site="parameter", ranks={"random": 1}),
        paftbench.Fault("stale_shard", name="forgot", degree=0.2, site="optimizer_state", ranks={"random": 1}),
        paftbench.Fault("bit_flip", name="moment", degree=1e-3, bits="mantissa", site="optimizer_state"),
    )
    trial = Trial(
        workload=ResNet() if model == "resnet" else AwkwardGpt2(),
        world_size=world_size,
        batch_per_rank=4,
        steps=STEPS_IN_ALL,
        optimizer=OptimizerConfig(name="adamw", lr=3e-3),
        placement="torchrun" if procs else "virtual",
        procs=procs,
        device="cpu",
        exact=True,
        eval_every=STEPS_IN_ALL,
        measure_every=1,
        checkpoint=CheckpointConfig(every=EVERY),
        faults=faults,
        mitigations=(SYNCS[model],),
    )
    return Planned(
        id="0" * 16, name="resumed", experiment="test", grid="test", labels={}, golden_id=None, judge="worst_rank",
        tolerance=0.02, plugins=(), sources={}, data=DataId(name="none", sha256=""), trial=trial,
    )  # fmt: skip


def run(item: Planned, directory: Path, *, until: int | None = None) -> bool:
    """Run this process's share of a trial, or `until` a step is recorded; whether it continued a checkpoint."""
    group = dist.group.WORLD if item.trial.placement == "torchrun" else None
    placement = trial_module.build_placement(item.trial, group)
    step, first = Recorder.step, []

    def recorded(self: Recorder, number: int, *rest: Any) -> None:
        first.append(number)
        step(self, number, *rest)
        if number == until:
            raise Interrupted

    Recorder.step = recorded  # type: ignore[method-assign]
    try:
        trial_module.run_share(item, placement, directory)
    except Interrupted:
        pass
    finally:
        Recorder.step = step  # type: ignore[method-assign]
    return first[0] > 0


def run_rank(model: str, world_size: int, procs: int, directory: Path, until: int | None) -> bool:
    return run(planned(model, world_size, procs=procs), directory, until=until)


def written(directory: Path) -> dict[str, Any]:
    """What a finished trial left, times aside."""
    result = read_json(directory / RESULT)
    del result["time"], result["environment"]
    rows = [{**row, "seconds": None} for row in read_lines(directory / STEPS)]
    return {"result": result, "steps": rows, "injections": (directory / INJECTIONS).read_text().splitlines()}
