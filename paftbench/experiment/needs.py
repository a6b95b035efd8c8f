"""What trials too large to try out will need: computing time, disk, data. Estimates, with what they rest on."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Final

from paftbench.experiment.plan import ABSENT
from paftbench.experiment.strikes import layout_of
from paftbench.records.trial import DTYPES, Trial
from paftbench.store.directory import Planned
from paftbench.workloads.contract import Cost, Workload
from paftbench.workloads.data import KNOWN

# Table 3 of the PAFT paper: one iteration of ResNet-50 on 128 images of CIFAR-100 takes a worker of four 0.201 s. That
# is 3 x 2 x 1.298e9 x 128 operations, on an RTX 2080 Ti of 13.4e12 a second in fp32 (NVIDIA's data sheet), 37 % of it.
TFLOPS: Final = 5.0
ASSUMED: Final = "what Table 3 of the paper implies for an RTX 2080 Ti, 37 % of its fp32 peak"
# Backward takes about twice the forward's multiply-adds; each is two operations.
FORWARDS: Final = 3
OPERATIONS: Final = 2
# Bytes of a row, measured on trials of 4, 8 and 32 ranks; after so many rows of a process no more strikes are written.
STEP_ROW, STEP_ROW_PER_RANK = 480, 22
STRIKE_ROW, STRIKE_ROWS = 240, 200_000
RECORD = 6_000


@dataclass(frozen=True, kw_only=True)
class Needs:
    """Of several trials: `gpu_hours` leaves out `uncounted` ones, whose workload does not say what it costs.

    `disk` is what results take in bytes, `checkpoint` what an unfinished trial takes at most besides.
    """

    gpu_hours: float
    uncounted: int
    disk: int
    checkpoint: int


def needs_of(planned: Iterable[Planned], tflops: float = TFLOPS) -> Needs:
    """What planned trials need on GPUs that sustain `tflops`, in fp32, in training."""
    planned = list(planned)
    hours = [_hours(item.trial, tflops) for item in planned]
    return Needs(
        gpu_hours=sum(value for value in hours if value is not None),
        uncounted=sum(value is None for value in hours),
        disk=sum(disk_bytes(item.trial) for item in planned),
        checkpoint=max((checkpoint_bytes(item.trial) for item in planned), default=0),
    )


def operations(trial: Trial) -> float | None:
    """Floating-point operations of a resolved trial's training and evaluation; `None` where they are not known.

    Not counted: aggregation, averaging, noise, the optimizer and records.
    """
    cost = _cost(trial.workload)
    if cost is None:
        return None
    trained = FORWARDS * trial.steps * trial.world_size * trial.batch_per_rank
    # Before the first step, every `eval_every` steps and after the last: each rank and the mean model.
    evaluations = 1 + -(-trial.steps // trial.eval_every)
    evaluated = evaluations * (trial.world_size + 1) * cost.evaluated
    return OPERATIONS * cost.multiply_adds * (trained + evaluated)


def disk_bytes(trial: Trial) -> int:
    """What the records of a resolved trial take; sparse strikes are counted as one row for a rank and step."""
    strikes = sum(fault.schedule.count(0, trial.steps) for fault in trial.faults)
    rows = min(strikes * trial.world_size, STRIKE_ROWS * trial.processes)
    return RECORD + trial.steps * (STEP_ROW + STEP_ROW_PER_RANK * trial.world_size) + round(rows * STRIKE_ROW)


def checkpoint_bytes(trial: Trial) -> int:
    """What a checkpoint takes: parameters and optimizer state of every rank, and a mean that was on its way."""
    if not trial.checkpoint.every:
        return 0
    replica = layout_of(trial.workload).size * DTYPES[trial.precision].itemsize
    pending = sum(mitigation.copies_pending for mitigation in trial.mitigations)
    return replica * (trial.world_size * (1 + len(trial.optimizer.state_kinds)) + pending)


def absent_data(planned: Iterable[Planned]) -> list[str]:
    """A line for each data set that is not here: how large it is, and the command that gets it."""
    absent: dict[str, list[Trial]] = {}
    for item in planned:
        if item.data.sha256 == ABSENT:
            absent.setdefault(item.data.name, []).append(item.trial)
    return [_data_line(name, trials) for name, trials in sorted(absent.items())]


def _data_line(name: str, trials: Iterable[Trial]) -> str:
    if KNOWN[name].kind != "tokens":
        return f"needed: {name}, {KNOWN[name].size}: `paftbench data {name}`"
    windows = max(
        trial.steps * trial.world_size * trial.batch_per_rank * trial.workload.tokens_per_item for trial in trials
    )
    count = f"{windows / 1e6:.0f} million token ids for one pass, {2 * windows / 1e6:.0f} MB as uint16"
    return f"needed: {name}, {count}: `paftbench data {name} path=FILE`"


def _hours(trial: Trial, tflops: float) -> float | None:
    count = operations(trial)
    return None if count is None else count / (tflops * 1e12) / 3600


@cache
def _cost(workload: Workload) -> Cost | None:
    return workload.cost()
