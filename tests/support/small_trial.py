"""One small virtual trial in a directory, run in this process."""

from pathlib import Path
from typing import Any

import paftbench
from paftbench.records.trial import CheckpointConfig, Trial
from paftbench.store.directory import Planned, write_planned
from paftbench.workloads.contract import DataId
from paftbench.workloads.quadratic import Quadratic

STEPS, EVERY = 24, 8


def planned(directory: Path, **fields: Any) -> Planned:
    """A trial of the quadratic bowl with a strike at every step, a synchronisation and checkpoints; written down."""
    trial = Trial(
        **{
            "workload": Quadratic(dim=20), "world_size": 2, "steps": STEPS, "eval_every": EVERY, "measure_every": 1,
            "checkpoint": CheckpointConfig(every=EVERY), "device": "cpu",
            "faults": (paftbench.Fault("gaussian_noise", degree=0.1),),
            "mitigations": (paftbench.Mitigation("paft_sync", period=4),),
            **fields,
        }
    ).resolved(device="cpu")  # fmt: skip
    item = Planned(
        id=directory.name, name="small", experiment="test", grid="test", labels={}, golden_id=None, judge="worst_rank",
        tolerance=0.02, plugins=(), sources={}, data=DataId(name="none", sha256=""), trial=trial,
    )  # fmt: skip
    write_planned(directory, item)
    return item


def files_of(directory: Path) -> dict[str, bytes]:
    """Every file of a trial by its name, as it is."""
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}
