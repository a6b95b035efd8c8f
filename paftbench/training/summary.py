"""What `result.json` says of a finished trial."""

import hashlib
from math import isfinite, isnan
from pathlib import Path
from statistics import median
from typing import Any

import torch

from paftbench.environment.record import environment
from paftbench.ranks.replicas import Replicas
from paftbench.records.formats import SCHEMA
from paftbench.records.outcome import Facts, outcome_of
from paftbench.step.metrics import all_finite, spread
from paftbench.store.directory import NOT_OF_THE_STEP, Planned
from paftbench.store.files import read_lines
from paftbench.training.loop import Placement
from paftbench.training.recorder import STEPS, Recorder


def summary(
    planned: Planned, placement: Placement, recorder: Recorder, directory: Path, golden: dict[str, Any] | None
) -> dict[str, Any]:
    """The record of a finished trial; every process must call it, and the one that hosts rank 0 has the rows."""
    replicas, pipeline, trial = placement.replicas, placement.pipeline, planned.trial
    hashes = [sha for part in replicas.ranks.gather_objects(_hashes(replicas)) for sha in part]
    finite = not replicas.ranks.any([not all_finite(replicas.parameters)])
    final = spread(replicas.parameters, replicas.ranks)
    counts = replicas.ranks.gather_objects(vars(pipeline.injector.counts))
    strikes = {key: sum(part[key] for part in counts) for key in counts[0]}
    rows = list(read_lines(directory / STEPS))
    history = recorder.history
    finite = finite and bool(rows) and all(isfinite(loss) for loss in rows[-1]["loss"])
    facts = Facts(
        nonfinite=not finite, judged=history[planned.judge][-1],
        golden=None if golden is None else golden["metric"][planned.judge], chance=trial.workload.chance,
        untrained=history[planned.judge][0], direction=trial.workload.direction, tolerance=planned.tolerance,
    )  # fmt: skip
    traffic = replicas.ranks.traffic
    return {
        "schema": SCHEMA,
        "id": planned.id,
        "name": planned.name,
        "experiment": planned.experiment,
        "grid": planned.grid,
        "labels": planned.labels,
        "outcome": outcome_of(facts),
        "reason": None,
        "bitwise_identical": None if golden is None else hashes == golden["params_sha256"],
        "golden_id": planned.golden_id,
        "metric": {
            "name": trial.workload.metric, "direction": trial.workload.direction, "chance": trial.workload.chance,
            "untrained": facts.untrained, "examples": trial.workload.examples(),
            **{key: history[key][-1] for key in ("mean_model", "worst_rank", "rank0")},
        },
        "stopped_at": rows[-1]["step"] + 1 if rows and rows[-1]["step"] + 1 < trial.steps else None,
        "history": history,
        "divergence": _divergence(rows, final),
        "inconsistency": _middle_and_top(rows, "inconsistency"),
        "nsr": _middle_and_top(rows, "nsr"),
        "strikes": strikes,
        "mitigation": {
            "syncs": pipeline.syncs, "periods": pipeline.periods, "bytes": pipeline.extra_bytes,
            "collectives": pipeline.extra_collectives,
            "memory_bytes": sum(m.memory_bytes(replicas.layout) for m in trial.mitigations),
        },
        "gradient_bytes": traffic.bytes - pipeline.extra_bytes,
        "time": _time(rows, planned),
        "params_sha256": hashes,
        "seeds": {"seed": trial.seed, "fault_seed": trial.faults_seed},
        "data": {"name": planned.data.name, "sha256": planned.data.sha256},
        "parameters": replicas.layout.size,
        "environment": environment(),
    }  # fmt: skip


def _hashes(replicas: Replicas) -> list[str]:
    """SHA-256 of each hosted rank's parameters, in registration order, as they lie in memory."""
    digests = []
    for row in range(len(replicas.ranks.local)):
        digest = hashlib.sha256()
        for block in replicas.parameters:
            digest.update(block[row].contiguous().cpu().view(-1).view(torch.uint8).numpy().tobytes())
        digests.append(digest.hexdigest())
    return digests


def _divergence(rows: list[dict[str, Any]], final: float) -> dict[str, float | None]:
    every = _values(rows, "divergence") + _values(rows, "divergence_before")
    before = _values(rows, "divergence_before")
    return {"final": final, "max": _top([*every, final]), "before_sync": _middle(before)}


def _middle_and_top(rows: list[dict[str, Any]], key: str) -> dict[str, float | None]:
    values = _values(rows, key)
    return {"median": _middle(values), "max": _top(values)}


def _values(rows: list[dict[str, Any]], key: str) -> list[float]:
    return [row[key] for row in rows if row[key] is not None]


def _middle(values: list[float]) -> float | None:
    """The median, NaN counting as larger than any number: it compares with none, and would break the order."""
    ordered = _ordered(values)
    return (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2 if ordered else None


def _top(values: list[float]) -> float | None:
    """The largest; NaN where there is one."""
    return _ordered(values)[-1] if values else None


def _ordered(values: list[float]) -> list[float]:
    return sorted(values, key=lambda value: (isnan(value), value))


def _time(rows: list[dict[str, Any]], planned: Planned) -> dict[str, Any]:
    """Seconds of a step without measuring, evaluating and injecting; the first step, which warms up, is left out."""
    steps = [sum(s for name, s in row["seconds"].items() if name not in NOT_OF_THE_STEP) for row in rows]
    sections: dict[str, float] = {}
    for row in rows:
        for name, seconds in row["seconds"].items():
            sections[name] = sections.get(name, 0.0) + seconds
    trial = planned.trial
    return {
        "step_median_s": median(steps[1:] or steps),
        "step_max_s": max(sum(row["seconds"].values()) for row in rows),
        "total_s": sum(sections.values()),
        "overhead_valid": trial.placement == "torchrun" and trial.processes == trial.world_size and not trial.exact,
        "sections": sections,
    }
