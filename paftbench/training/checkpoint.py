"""The checkpoint of an unfinished trial, from which it continues bitwise.

Each process writes its share under a temporary name and renames it; `checkpoint.json`, written when all shares and all
rows of before are durable, is the commit mark, and says how long the row files were. Shares hold tensors, numbers,
strings, lists and dicts only and load with `weights_only`.
"""

import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from paftbench.errors import Refused
from paftbench.ranks.axis import Ranks
from paftbench.store.directory import CHECKPOINT, INJECTIONS, STEPS
from paftbench.store.files import read_json, replacing, sync, write_json
from paftbench.store.lease import Lease
from paftbench.store.rows import Extent
from paftbench.telling import reason_of


@dataclass(frozen=True, kw_only=True)
class Saved:
    """A trial that had completed `step` steps: this process's state, and how much of the row files there was then."""

    step: int
    state: dict[str, Any]
    rows: dict[str, Extent]


def save(
    directory: Path, step: int, ranks: Ranks, state: dict[str, Any], rows: Mapping[str, Extent], lease: Lease | None
) -> None:
    """Save a trial that has completed `step` steps and drop the checkpoint before; every process must call it.

    `rows` are those of the process that hosts rank 0.
    """
    check = None if lease is None else lease.check
    folder = directory / f"checkpoint-{step}"
    folder.mkdir(exist_ok=True)
    with replacing(_share(folder, ranks), check=check) as temporary, temporary.open("wb") as file:
        torch.save(state, file)
    ranks.barrier()
    if ranks.hosts_first:
        mark = {"step": step, "rows": {name: asdict(extent) for name, extent in rows.items()}}
        sync(directory)
        write_json(directory / CHECKPOINT, mark, check=check)
        if check is not None:
            check()
        _drop(directory, before=step)


def load(directory: Path, ranks: Ranks) -> Saved | None:
    """The newest checkpoint; None where the trial has none, `ValueError` where one cannot be read."""
    mark = directory / CHECKPOINT
    if not mark.exists():
        return None
    path = mark
    try:
        content = read_json(mark)
        step, rows = int(content["step"]), {name: Extent(**content["rows"][name]) for name in (STEPS, INJECTIONS)}
        path = _share(directory / f"checkpoint-{step}", ranks)
        state: dict[str, Any] = torch.load(path, weights_only=True)
    except Exception as error:
        said = reason_of(error)
        raise Refused(f"the checkpoint {path} cannot be read ({said}); delete {mark} to start over") from error
    return Saved(step=step, state=state, rows=rows)


def discard(directory: Path) -> None:
    """Remove the checkpoints of a trial that has finished."""
    (directory / CHECKPOINT).unlink(missing_ok=True)
    _drop(directory, before=None)


def _share(folder: Path, ranks: Ranks) -> Path:
    return folder / f"ranks-from-{ranks.local[0]}.pt"


def _drop(directory: Path, before: int | None) -> None:
    """Remove what is older; what another process may have saved since this one lost its claim is not."""
    for folder in directory.glob("checkpoint-*"):
        step = folder.name.rpartition("-")[2]
        if before is None or not step.isdigit() or int(step) < before:
            shutil.rmtree(folder)
