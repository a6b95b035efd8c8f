"""Builds the sweeps of the paper's items as `paftbench paper` would leave them, without running anything."""

from collections.abc import Iterator
from math import exp, log, log10
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from paftbench.paper import verdicts
from paftbench.paper.claim import Claim, Where
from paftbench.paper.claims import claims_of
from paftbench.paper.items import STATE_PARTS, Item, item_of
from paftbench.paper.judging import Judgement
from paftbench.theory import divergence, drift
from support.synthetic_results import GPT2, NOISE, RESNET, identity, spec, steps_rows, write_trial

SYNC = {"name": "paft_sync", "state": "params", "overlap": True, "buffers": True}
DYN = {"name": "paft_dyn", "rule": "code", "period": 10, "period_min": 2, "period_max": 10, "overlap": True,
       "state": "params", "modulo": True}  # fmt: skip
METHODS: dict[str, list[dict[str, Any]]] = {
    "golden": [], "ddp": [], "paft_sync": [{**SYNC, "period": 10}],
    **{f"paft_sync_H{period}": [{**SYNC, "period": period}] for period in (5, 10, 50)},
    "paft": [DYN], "paft_all": [{**DYN, "state": "all"}],
}  # fmt: skip
STEP_S = {"ddp": 0.01, "paft_sync": 0.0125, "paft": 0.012}
BURST = {"kind": "burst", "every": 25, "length": 1, "offset": 7}


def sweep_of(directory: Path, name: str, *, scale: str = "small", seeds: int = 3, steps: int = 120) -> Path:
    """Trials of every cell that the item's claims compare, at both degrees where one stands for the other."""
    item = item_of(name)
    with patch("paftbench.store.files.sync"):  # to wait for the disk is what takes long
        _write(directory, item, scale, seeds, steps)
    return directory


def _write(directory: Path, item: Item, scale: str, seeds: int, steps: int) -> None:
    for workload, world_size, degree in _settings(item, scale):
        for seed in range(seeds):
            golden_id = None
            for method in item.methods:
                if method == "golden" or item.kind == "overhead":
                    faults: list[dict[str, Any]] = []
                else:
                    faults = _faults(item, degree)
                id = _trial(directory, item, method, workload, world_size, degree, faults, seed, steps, golden_id)
                golden_id = id if method == "golden" else golden_id


def _settings(item: Item, scale: str) -> Iterator[tuple[dict[str, Any], int, float]]:
    resnet = RESNET if scale == "small" else {"name": "resnet", "size": "resnet18", "data": "cifar10"}
    gpt2 = GPT2 if scale == "small" else {"name": "gpt2", "size": "124m", "data": "tokens"}
    if item.name == "optimizer_state":
        for part in STATE_PARTS:
            for degree in (part.noise, part.stand_in) if scale == "small" else (part.noise,):
                yield (gpt2, 8, degree) if part.workload == "gpt2" else (resnet, 4, degree)
        return
    stand_ins = [ours for ours, _ in item.stand_ins] if scale == "small" else []
    for world_size in item.world_sizes if item.kind != "overhead" else (2, 4):
        for degree in [*item.noise, *stand_ins] or [0.0]:
            yield gpt2 if item.name.startswith("fig7") else resnet, world_size, degree


def _faults(item: Item, degree: float) -> list[dict[str, Any]]:
    if item.burst:
        return [{**NOISE, "name": "floor", "degree": 1e-4},
                {**NOISE, "name": "burst", "degree": degree, "schedule": BURST}]  # fmt: skip
    return [{**NOISE, "degree": degree}]


def _trial(
    directory: Path, item: Item, method: str, workload: dict[str, Any], world_size: int, degree: float,
    faults: list[dict[str, Any]], seed: int, steps: int, golden_id: str | None,
) -> str:  # fmt: skip
    placement = "torchrun" if item.kind == "overhead" else "virtual"
    trial = spec(
        workload, steps=steps, seed=seed, faults=faults, mitigations=METHODS[method], world_size=world_size,
        placement=placement,
    )  # fmt: skip
    path = directory / identity(trial)
    if path.exists():
        return path.name  # the golden run is shared
    draw = np.random.default_rng([seed, len(method), world_size])
    loss = workload["name"] == "gpt2"
    end = _end(method, degree, loss) + (0.01 if not loss else 0.02) * draw.standard_normal()
    start = log(256) if loss else 0.1
    curve = [(value, value, value) for value in (start + (end - start) * (1 - exp(-0.7 * i)) for i in range(9))]
    labels: dict[str, Any] = {"mitigation": method}
    if method != "golden" and item.noise and not item.burst:
        labels = {"faults.noise.degree": degree, **labels}
    return write_trial(
        directory, trial, grid="golden" if method == "golden" else "noise", labels=labels, golden_id=golden_id,
        metric=curve[-1], metric_name="val_loss" if loss else "accuracy", judge="rank0", curve=curve,
        drawn=0 if not faults else 9, rows=_rows(trial, method, degree, world_size, start, end),
        step_s=STEP_S.get(method, 0.01) * (1 + 0.01 * draw.standard_normal()),
    )  # fmt: skip


def _end(method: str, degree: float, loss: bool) -> float:
    """Noise hurts from 1e-3 on, averaging brings most of it back."""
    harm = 0.0 if method == "golden" else max(0.0, log10(max(degree, 1e-9)) + 3.2) / 3.0
    kept = {"ddp": 1.0, "paft_sync_H50": 0.5, "paft_sync_H10": 0.35}.get(method, 0.3)
    return 2.2 + 2.0 * kept * harm if loss else 0.95 - 0.8 * kept * harm


def _rows(
    trial: dict[str, Any], method: str, degree: float, world_size: int, start: float, end: float
) -> list[dict[str, Any]]:
    steps = trial["steps"]
    path = drift(np.linspace(0.1, 0.0005, steps), momentum=0.9, weight_decay=1e-4)
    spread = divergence(path.after, std=0.0 if method == "golden" else degree, ranks=world_size, parameters=80_000)
    rows = steps_rows(trial, [float(value) for value in spread], [None] * steps, lambda t: 4)
    draw = np.random.default_rng([trial["seed"], steps])
    period = 10
    for row in rows:
        step = row["step"]
        loss = start + (end - start) * (1 - exp(-6 * step / steps)) + 0.1 * draw.standard_normal()
        row["loss"] = [loss] * world_size
        row["decision"] = None
        if method.startswith("paft") and "sync" not in method and (step + 1) % period == 0:
            chosen = 10 if degree <= 1e-3 or step < 10 else 2 + int(draw.integers(2))
            row["decision"] = {"rule": "code", "layer": "conv", "gradient": 0.1, "spread": 0.01, "sigma": None,
                               "lr": row["lr"], "period_before": period, "period": chosen}  # fmt: skip
            row["synced"], period = True, chosen
        row["period"] = period
    return rows


def pair(
    directory: Path, gains: list[float], *, where: Where = (), left: str = "paft", right: str = "ddp", base: float = 0.6
) -> None:
    """A run of both sides per seed, whose rank-0 accuracies differ by `gains`; other metrics differ by nothing."""
    fields = dict(where)
    degree = float(fields.get("faults.noise.degree", 1e-2))
    for seed, gain in enumerate(gains):
        for method, accuracy in ((left, base + gain), (right, base)):
            trial = spec(
                RESNET, steps=10, seed=seed, faults=[{**NOISE, "degree": degree}], mitigations=METHODS[method],
                world_size=fields.get("world_size", 4),
            )  # fmt: skip
            write_trial(
                directory, trial, grid="noise", labels={"faults.noise.degree": degree, "mitigation": method},
                metric=(base, base, accuracy), judge="rank0", drawn=4,
            )  # fmt: skip


def of(item: str, id: str, scale: str = "small") -> Claim:
    """One claim by its id."""
    (claim,) = [claim for claim in claims_of(item, scale) if claim.id == id]
    return claim


def judged(directory: Path, id: str, scale: str = "small", item: str = "table1") -> Judgement:
    """What a sweep says of one claim."""
    (verdict,) = [verdict for verdict in verdicts(item, directory, scale=scale) if verdict.claim.id == id]
    return verdict
