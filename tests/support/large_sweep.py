"""Experiments of thousands of trials, and their results without training any."""

import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

from paftbench.experiment import load, plan
from paftbench.store.directory import Planned, write_json
from paftbench.store.plans import write_plan


def write_experiment(path: Path, *, degrees: int, seeds: int) -> Path:
    """4 mitigations x `degrees` x `seeds` on ResNet nano; the file's name is the experiment's."""
    values = ", ".join(f"{0.001 * (1 + number):.3f}" for number in range(degrees))
    path.write_text(f"""
schema: 1
name: {path.stem}
base: {{workload: {{name: resnet, size: nano, data: digits}}, world_size: 4, batch_per_rank: 32, steps: 200}}
axes:
  mitigation:
    ddp: {{mitigations: []}}
    paft_sync: {{mitigations: [{{name: paft_sync, period: 10}}]}}
    paft_sync_5: {{mitigations: [{{name: paft_sync, period: 5}}]}}
    clip_paft_sync: {{mitigations: [{{name: clip_value, limit: 0.1}}, {{name: paft_sync, period: 10}}]}}
grids:
  - name: noise
    set: {{faults: [{{name: noise, model: gaussian_noise, degree: 0, unit: std, site: result}}]}}
    axes: {{faults.noise.degree: [{values}]}}
seeds: {seeds}
""")
    return path


def finish(path: Path, out: Path) -> list[Planned]:
    """Give every trial of an experiment a result under `out`; seeds differ, so that tables have something to say."""
    planned = plan(load(str(path)))
    for number, item in enumerate(planned):
        finish_one(item, out, 0.9 + 0.0001 * (number % 97))
    return planned


def finish_one(item: Planned, out: Path, metric: float) -> None:
    """One trial's plan and result; it took 2 s."""
    directory = out / item.experiment / item.id
    write_plan(directory, item, None)
    write_json(directory / "result.json", _result(item.spec(), metric), durable=False)


def _result(spec: dict[str, Any], metric: float) -> dict[str, Any]:
    views = {"mean_model": metric + 0.01, "worst_rank": metric - 0.01, "rank0": metric}
    trial = spec["trial"]
    return {
        **{key: spec[key] for key in ("schema", "id", "name", "experiment", "grid", "labels", "golden_id", "data")},
        "outcome": "masked", "reason": None, "bitwise_identical": False,
        "metric": {"name": "accuracy", "direction": "max", "chance": 0.1, "untrained": 0.1, **views},
        "history": {"step": [0, 100, 200], **{view: [0.1, value, value] for view, value in views.items()}},
        "divergence": {"final": metric, "max": metric, "before_sync": metric},
        "inconsistency": {"median": metric, "max": metric}, "nsr": {"median": metric, "max": metric},
        "strikes": {"drawn": 100, "landed": 100, "changed": 100},
        "mitigation": {"syncs": 20, "periods": [10] * 20, "bytes": 80_000, "collectives": 20, "memory_bytes": 80_000},
        "gradient_bytes": 16_000_000, "params_sha256": ["0" * 64] * 4, "parameters": 20_000, "environment": {},
        "time": {"step_median_s": 0.01, "step_max_s": 0.1, "total_s": 2.0, "overhead_valid": False, "sections": {}},
        "seeds": {"seed": trial["seed"], "fault_seed": trial["fault_seed"]},
    }  # fmt: skip


def paftbench(*arguments: Any) -> tuple[float, str, str]:
    """CPU seconds, stdout and stderr of a whole command in a process of its own."""
    command = [sys.executable, "-m", "paftbench.cli.main", *map(str, arguments)]
    before = _cpu_of_children()
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return _cpu_of_children() - before, done.stdout, done.stderr


def _cpu_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
