"""The core sweep as it will look: three fault models at rising degrees, chosen periods, runs that break."""

from collections.abc import Sequence
from math import nan
from pathlib import Path
from typing import Any

import numpy as np

from support.synthetic_results import FLIPS, MITIGATIONS, NOISE, RESNET, SYNC, identity, spec, write_trial

DYN = {
    "name": "paft_dyn", "rule": "code", "period": 10, "period_min": 2, "period_max": 10, "overlap": False,
    "state": "params", "buffers": True, "modulo": False, "budget": 1.5,
}  # fmt: skip
STALE = {**NOISE, "name": "stale", "model": "stale_shard", "unit": "fraction", "delay": 1,
         "schedule": {"kind": "probability", "p": 0.1}}  # fmt: skip
DEFENCES = {"ddp": [], "paft_sync": [SYNC], "paft_dyn": [DYN], "averaging_limit": MITIGATIONS["averaging_limit"]}
# Degree -> (NSR of the median and of the worst step, quality of plain DDP, of PAFT, how many runs of plain DDP break)
GRIDS: dict[str, tuple[dict[str, Any], dict[float, tuple[float, float, float, float, int]]]] = {
    "noise": (NOISE, {1e-3: (0.05, 0.3, 0.983, 0.984, 0), 1e-2: (0.5, 3, 0.975, 0.982, 0),
                      3e-2: (1.5, 9, 0.93, 0.98, 0), 1e-1: (5, 30, 0.55, 0.93, 0)}),
    "flips": ({**FLIPS, "schedule": {"kind": "burst", "every": 50, "length": 1, "offset": 25}},
              {1e-5: (0, 0.02, 0.984, 0.984, 0), 1e-4: (0, 3.0, 0.98, 0.97, 0), 1e-3: (0, 4e12, 0.9, 0.6, 2),
               1e-2: (0, 2e36, 0.4, 0.15, 4)}),
    "stale": (STALE, {0.1: (0, 0.4, 0.984, 0.984, 0), 0.3: (0, 0.7, 0.983, 0.984, 0), 0.5: (0, 1.0, 0.981, 0.983, 0),
                      1.0: (0, 1.9, 0.978, 0.983, 0)}),
}  # fmt: skip


def core(
    directory: Path,
    seeds: int = 5,
    steps: int = 60,
    workload: dict[str, Any] = RESNET,
    grids: Sequence[str] = ("noise", "flips", "stale"),
) -> Path:
    """Every cell of the core sweep for one workload, without training."""
    for seed in range(seeds):
        best = spec(workload, steps=steps, seed=seed, faults=[], mitigations=[])
        _write(directory, best, "golden", {"mitigation": "golden"}, 0.984, (0.0, 0.0), None)
        for grid, (fault, ladder) in ((grid, GRIDS[grid]) for grid in grids):
            for degree, (middle, worst, plain, defended, broken) in ladder.items():
                for name, mitigations in DEFENCES.items():
                    faults = [{**fault, "degree": degree}]
                    trial = spec(workload, steps=steps, seed=seed, faults=faults, mitigations=mitigations)
                    labels = {f"faults.{fault['name']}.degree": degree, "mitigation": name}
                    end = plain if name == "ddp" else defended if name != "averaging_limit" else 0.982
                    outcome = None if seed >= broken or name != "ddp" else "crashed" if seed == 1 else "nonfinite"
                    _write(directory, trial, grid, labels, end, (middle, worst), identity(best), outcome, degree)
    return directory


def _write(
    directory: Path, trial: dict[str, Any], grid: str, labels: dict[str, Any], end: float,
    nsr: tuple[float, float], golden_id: str | None, broke: str | None = None, degree: float = 0.0,
) -> None:  # fmt: skip
    draw = np.random.default_rng([trial["seed"], len(grid), len(str(labels))])
    loss = trial["workload"]["name"] != "resnet"
    end = (1 - end) * 4 + 2.2 if loss else end
    value = end + (0.02 if loss else 0.003) * draw.standard_normal()
    metric: Any = (value,) * 3 if broke is None else (nan if loss else 0.1,) * 3
    if broke == "crashed":
        metric = (None,) * 3
    decisions = _decisions(trial, degree, draw)
    write_trial(
        directory, trial, grid=grid, labels=labels, golden_id=golden_id, metric=metric,
        metric_name="val_loss" if loss else "accuracy", drawn=0 if grid == "golden" else 5,
        outcome=broke or ("degraded" if end < 0.95 else "masked"),
        curve=[(0.1,) * 3, metric] if broke != "crashed" else [], rows=_rows(trial, decisions),
        nsr={"median": nsr[0], "max": nsr[1]}, chance=5.55 if loss else 0.1,
        mitigation={"syncs": len(decisions), "periods": [row["period_before"] for row in decisions.values()],
                    "bytes": 320_000 * len(decisions), "collectives": len(decisions), "memory_bytes": 0},
    )  # fmt: skip


def _decisions(trial: dict[str, Any], degree: float, draw: np.random.Generator) -> dict[int, dict[str, Any]]:
    """By step: what PAFT-Dyn chose; the noisier, the shorter."""
    if not any(mitigation["name"] == "paft_dyn" for mitigation in trial["mitigations"]):
        return {}
    own = trial["mitigations"][0]
    found, period, step = {}, own["period"], own["period"] - 1
    while step < trial["steps"]:
        chosen = int(np.clip(round(0.06 / max(degree, 1e-6) + draw.normal()), 2, 10))
        found[step] = {
            "rule": own["rule"], "layer": "fc.weight", "gradient": 0.01, "spread": 0.001,
            "sigma": degree * (1 + 0.03 * draw.normal()) if own["rule"] == "consensus" else None, "lr": 0.1,
            "period_before": period, "period": chosen,
        }  # fmt: skip
        period, step = chosen, step + chosen
    return found


def _rows(trial: dict[str, Any], decisions: dict[int, dict[str, Any]]) -> list[dict[str, Any]]:
    rows, period = [], 10
    for step in range(trial["steps"]):
        decision = decisions.get(step)
        period = decision["period"] if decision else period
        rows.append(
            {"step": step, "loss": [1.0] * 4, "lr": 0.1, "grad_norm": 1.0, "divergence": 0.1 * (step + 1),
             "divergence_before": 0.1 * (step + 1) if decision else None, "inconsistency": 0.0, "nsr": 0.1,
             "strikes": 1, "synced": decision is not None, "period": period if decisions else None,
             "decision": decision, "seconds": {}}
        )  # fmt: skip
    return rows


def timed(directory: Path, seeds: int = 3, sizes: Sequence[int] = (2, 4), steps: int = 41) -> Path:
    """Torchrun trials with times: a step takes 10 ms, a blocking synchronisation 4 ms more."""
    for seed in range(seeds):
        for size in sizes:
            for name, mitigations in {
                "ddp": [], "paft_sync": [SYNC], "paft_sync_overlap": [{**SYNC, "overlap": True}], "paft_dyn": [DYN],
            }.items():  # fmt: skip
                faults = [{**NOISE, "degree": 0.01}]
                trial = spec(
                    RESNET, steps=steps, seed=seed, faults=faults, mitigations=mitigations, placement="torchrun",
                    procs=size,
                )  # fmt: skip
                trial["world_size"] = size
                rows = _timed_rows(trial, np.random.default_rng([seed, size, len(name)]))
                syncs = sum(row["synced"] for row in rows)
                write_trial(
                    directory, trial, grid="noise", labels={"world_size": size, "mitigation": name}, rows=rows, drawn=5,
                    step_s=0.01, gradient_bytes=320_000 * steps,
                    mitigation={"syncs": syncs, "periods": [], "bytes": 320_000 * syncs, "collectives": syncs,
                                "memory_bytes": 0},
                )  # fmt: skip
    return directory


def _timed_rows(trial: dict[str, Any], draw: np.random.Generator) -> list[dict[str, Any]]:
    """Every tenth step synchronises (of paft_dyn every fifth); the first one warms up, the twentieth was disturbed."""
    own = trial["mitigations"][0] if trial["mitigations"] else {}
    every = 0 if not own else 5 if own["name"] == "paft_dyn" else 10
    rows = []
    for step in range(trial["steps"]):
        synced = bool(every) and (step + (0 if own["overlap"] else 1)) % every == 0 and step > 0
        sync = 0.0002 if own.get("overlap") else 0.004
        seconds = {
            "data": 0.0005, "compute": 0.008 + 1e-4 * draw.normal(), "aggregate": 0.0005, "inject": 0.1,
            "mitigate": 1e-5 + (sync if synced else 0.0), "optimizer": 0.001, "measure": 0.2,
        }  # fmt: skip
        if step in (0, 20):
            seconds["compute"] = 1.0
        rows.append(
            {"step": step, "loss": [1.0] * trial["world_size"], "lr": 0.1, "grad_norm": None, "divergence": None,
             "divergence_before": None, "inconsistency": None, "nsr": None, "strikes": 1, "synced": synced,
             "period": every or None, "decision": None, "seconds": seconds}
        )  # fmt: skip
    return rows
