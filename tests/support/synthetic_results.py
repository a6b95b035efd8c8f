"""Builds result directories as a sweep would leave them, without running anything."""

import hashlib
import json
from collections.abc import Sequence
from math import exp, isnan, log, sqrt
from pathlib import Path
from typing import Any

import numpy as np

from paftbench.store.directory import encode_line, write_json
from paftbench.theory import divergence, drift

NOISE = {
    "name": "noise", "model": "gaussian_noise", "degree": 0.0, "unit": "std", "site": "result", "ranks": "all",
    "parameters": "*", "persistence": "transient", "schedule": "every_step",
}  # fmt: skip
FLIPS = {**NOISE, "name": "flips", "model": "bit_flip", "unit": "per_element", "bits": "any", "ranks": {"random": 1},
         "schedule": {"kind": "burst", "every": 50, "length": 1, "offset": 25}}  # fmt: skip
SYNC = {"name": "paft_sync", "period": 10, "state": "params", "overlap": False, "buffers": True}
MITIGATIONS: dict[str, list[dict[str, Any]]] = {
    "ddp": [],
    "paft_sync": [SYNC],
    "clip_paft_sync": [{"name": "clip_value", "limit": 0.1}, SYNC],
    "averaging_limit": [{"name": "regather"}],
}
RESNET = {"name": "resnet", "size": "nano", "data": "digits"}
GPT2 = {"name": "gpt2", "size": "nano", "data": "pydoc"}
LLAMA2 = {"name": "llama2", "size": "nano", "data": "pydoc"}


FAULT = {**NOISE, "degree": 0.03}


def spec(
    workload: dict[str, Any], *, steps: int, seed: int, faults: list[Any], mitigations: list[Any], **other: Any
) -> Any:
    optimizer = {"name": "sgd", "lr": 0.1, "momentum": 0.9, "weight_decay": 1e-4, "betas": [0.9, 0.999], "eps": 1e-8}
    if workload["name"] != "resnet":
        optimizer |= {"name": "adamw", "lr": 1e-3, "weight_decay": 0.01}
    return {
        "workload": workload, "world_size": 4, "batch_per_rank": 32, "steps": steps, "epochs": None,
        "optimizer": optimizer, "precision": "fp32", "placement": "virtual", "procs": None, "exact": False,
        "seed": seed, "fault_seed": seed, "faults": faults, "mitigations": mitigations, **other,
    }  # fmt: skip


def write_trial(
    directory: Path,
    trial: dict[str, Any],
    *,
    grid: str,
    labels: dict[str, Any],
    golden_id: str | None = None,
    outcome: str | None = "masked",
    metric: Sequence[float | None] = (0.99, 0.98, 0.985),
    metric_name: str = "accuracy",
    judge: str = "worst_rank",
    tolerance: float = 0.02,
    drawn: int = 0,
    step_s: float | None = None,
    chance: float = 0.1,
    curve: Sequence[tuple[float, float, float]] = (),
    rows: Sequence[dict[str, Any]] = (),
    injections: Sequence[dict[str, Any]] = (),
    schema: int = 1,
    **result: Any,
) -> str:
    """One trial directory; `outcome=None` leaves it unfinished. Returns the id."""
    id = identity(trial)
    name = "/".join([grid, *(f"{axis}={value}" for axis, value in labels.items()), f"s{trial['seed']}"])
    own = {"schema": schema, "id": id, "name": name, "experiment": "made_up", "grid": grid, "labels": labels,
           "golden_id": golden_id}  # fmt: skip
    path = directory / id
    path.mkdir(parents=True)
    data = {"name": trial["workload"]["data"], "sha256": "0" * 64}
    planned = {
        **own,
        "judge": judge,
        "tolerance": tolerance,
        "plugins": [],
        "sources": {},
        "data": data,
        "trial": trial,
    }
    write_json(path / "trial.json", planned)
    (path / "steps.jsonl").write_text("".join(encode_line(row) for row in rows))
    (path / "injections.jsonl").write_text("".join(encode_line(row) for row in injections))
    if outcome is None:
        return id
    every = max(1, trial["steps"] // max(1, len(curve) - 1))
    history = {"step": [i * every for i in range(len(curve))]}
    history |= {view: [point[k] for point in curve] for k, view in enumerate(("mean_model", "worst_rank", "rank0"))}
    spread = [row["divergence"] for row in rows if row["divergence"] is not None]
    payload = {
        **own, "outcome": outcome, "reason": None, "bitwise_identical": None,
        "metric": {"name": metric_name, "direction": "max" if metric_name == "accuracy" else "min", "chance": chance,
                   "untrained": chance, "mean_model": metric[0], "worst_rank": metric[1], "rank0": metric[2]},
        "history": history,
        "divergence": {"final": spread[-1] if spread else None, "max": max(spread, default=None), "before_sync": None},
        "inconsistency": {"median": None, "max": None}, "nsr": {"median": 0.12 if drawn else None, "max": None},
        "strikes": {"drawn": drawn, "landed": drawn, "changed": drawn},
        "mitigation": {"syncs": 0, "periods": [], "bytes": 0, "collectives": 0, "memory_bytes": 0},
        "gradient_bytes": 320_000,
        "time": {"step_median_s": step_s, "step_max_s": step_s, "total_s": 1.0,
                 "overhead_valid": trial["placement"] == "torchrun" and not trial["exact"], "sections": {}},
        "params_sha256": [], "seeds": {"seed": trial["seed"], "fault_seed": trial["seed"]}, "data": data,
        "parameters": 80_000, "environment": {}, **result,
    }  # fmt: skip
    write_json(path / "result.json", payload)
    return id


def steps_rows(
    trial: dict[str, Any], drift_path: Sequence[float], before: Sequence[float | None], strikes: Any
) -> list[Any]:
    rates = np.linspace(0.1, 0.0005, trial["steps"])
    return [
        {"step": t, "loss": [2.0] * 4, "lr": float(rates[t]), "grad_norm": 1.0, "divergence": drift_path[t],
         "divergence_before": before[t], "inconsistency": 0.0, "nsr": 0.1, "strikes": strikes(t),
         "synced": before[t] is not None, "period": 10, "seconds": {}}
        for t in range(trial["steps"])
    ]  # fmt: skip


def write_cell(
    directory: Path, workload: dict[str, Any], grid: str, labels: dict[str, Any], fault: dict[str, Any] | None,
    mitigation: str, seed: int, golden_id: str | None, end: float, steps: int,
) -> str:  # fmt: skip
    """A trial whose curves look like training: it ends near `end`, and drifts as theory says."""
    faults = [] if fault is None else [fault]
    trial = spec(workload, steps=steps, seed=seed, faults=faults, mitigations=MITIGATIONS.get(mitigation, []))
    draw = np.random.default_rng(seed + len(grid) + len(mitigation))
    start = 0.1 if workload["name"] == "resnet" else log(256)
    end += 0.004 * draw.standard_normal()
    ends = [start + (end - start) * (1 - exp(-6.0 * i / 8)) + 0.004 * draw.standard_normal() for i in range(9)]
    worse = (
        0.0 if fault is None or mitigation == "averaging_limit" else 0.01 * (1 if workload["name"] != "resnet" else -1)
    )
    curve = [(value, value + worse, value + worse / 2) for value in ends]
    synced = "sync" in mitigation
    burst = fault is not None and fault["schedule"] != "every_step"
    rates = np.linspace(0.1, 0.0005, steps)
    tooth = drift(rates, momentum=0.9, period=10 if synced else None)
    std = 0.0 if fault is None or mitigation == "averaging_limit" else (1e-3 if burst else fault["degree"])
    after, before = (divergence(path, std=std, ranks=4, parameters=80_000) for path in (tooth.after, tooth.before))
    if burst:
        after[:25], before[:25] = 0.0, 0.0
        if mitigation == "ddp":
            after[25:] *= 1e4
    is_sync = [synced and (t + 1) % 10 == 0 for t in range(steps)]
    struck = (
        (lambda t: 0)
        if fault is None
        else (lambda t: 800 if (t - 24) % 50 == 0 else 0)
        if burst
        else (lambda t: 320_000)
    )
    rows = steps_rows(trial, after.tolist(), [float(before[t]) if is_sync[t] else None for t in range(steps)], struck)
    return write_trial(
        directory, trial, grid=grid, labels=labels, golden_id=golden_id, metric=curve[-1], curve=curve, rows=rows,
        metric_name="accuracy" if workload["name"] == "resnet" else "val_loss",
        drawn=sum(row["strikes"] for row in rows),
        outcome="masked" if isnan(end) or mitigation != "ddp" or end > 0.98 else "degraded",
        injections=_injections(rows, burst, seed),
        mitigation={"syncs": sum(is_sync), "periods": [10], "bytes": 320_000 * sum(is_sync), "collectives": 0,
                    "memory_bytes": 0},
    )  # fmt: skip


def _injections(rows: list[Any], burst: bool, seed: int) -> list[dict[str, Any]]:
    found = []
    for row in rows:
        ranks = [(row["step"] + seed) % 4] if burst else range(4)
        for rank in ranks if row["strikes"] else []:
            common = {"step": row["step"], "attempt": 0, "fault": "f", "rank": rank, "site": "result", "landed": True}
            if burst:
                for bit in (31, 30, 3):
                    found.append({**common, "parameter": f"layer{bit}.weight", "index": 5, "bit": bit,
                                  "bits_before": "0x3f800000", "bits_after": "0x3f800008", "value_before": 1.0,
                                  "value_after": -1.0 if bit == 31 else 1.5, "norm": None,
                                  "elements": None})  # fmt: skip
            else:
                found.append({**common, "parameter": None, "index": None, "bit": None, "bits_before": None,
                              "bits_after": None, "value_before": None, "value_after": None,
                              "norm": 0.03 * sqrt(80_000), "elements": 80_000})  # fmt: skip
    return found


def quickstart(directory: Path, seeds: int = 3, steps: int = 200) -> Path:
    """Something like the quickstart sweep."""
    for seed in range(seeds):
        id = write_cell(directory, RESNET, "golden", {"mitigation": "golden"}, None, "golden", seed, None, 0.99, steps)
        for degree, ddp, synced in ((1e-3, 0.985, 0.988), (1e-2, 0.97, 0.987), (3e-2, 0.92, 0.985)):
            fault = {**NOISE, "degree": degree}
            for mitigation, end in {"ddp": ddp, "paft_sync": synced, "averaging_limit": 0.988}.items():
                labels = {"faults.noise.degree": degree, "mitigation": mitigation}
                write_cell(directory, RESNET, "noise", labels, fault, mitigation, seed, id, end, steps)
        fault = {**FLIPS, "degree": 1e-2}
        for mitigation, end in {
            "ddp": 0.985,
            "paft_sync": 0.3,
            "clip_paft_sync": 0.988,
            "averaging_limit": 0.12,
        }.items():
            write_cell(directory, RESNET, "flips", {"mitigation": mitigation}, fault, mitigation, seed, id, end, steps)
    for workload in (GPT2, LLAMA2):
        grid = workload["name"]
        id = write_cell(
            directory, workload, "golden", {"mitigation": "golden"}, None, "golden", 0, None, 2.25, steps // 2
        )
        fault = {**NOISE, "degree": 1e-3}
        for mitigation, end in {"ddp": 2.48, "paft_sync": 2.42, "averaging_limit": 2.40}.items():
            write_cell(directory, workload, grid, {"mitigation": mitigation}, fault, mitigation, 0, id, end, steps // 2)
    return directory


def cell(
    directory: Path,
    mitigation: str,
    metrics: list[Any],
    /,
    *,
    faults: Any = None,
    grid: str = "noise",
    trial: Any = None,
    **result: Any,
) -> None:
    """A trial per seed; `metrics` are (mean_model, worst_rank, rank0), or one number for all three."""
    for seed, metric in enumerate(metrics):
        values = metric if isinstance(metric, tuple) else (metric,) * 3
        faults_of = [FAULT] if faults is None else faults
        own = spec(
            RESNET, steps=10, seed=seed, faults=faults_of, mitigations=MITIGATIONS.get(mitigation, []), **(trial or {})
        )
        golden = spec(RESNET, steps=10, seed=seed, faults=[], mitigations=[], **(trial or {}))
        given = {"drawn": 5, **result}
        write_trial(
            directory, own, grid=grid, labels={"mitigation": mitigation}, metric=values,
            golden_id=identity(golden) if faults_of else None, **given,
        )  # fmt: skip


def identity(trial: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(trial, sort_keys=True).encode()).hexdigest()[:16]


def golden(directory: Path, metrics: list[Any], **more: Any) -> None:
    cell(directory, "golden", metrics, faults=[], grid="golden", drawn=0, **more)
