"""The checkpoint of an unfinished trial, from which it continues bitwise.

Each process writes its share under a temporary name and renames it; `checkpoint.json`, written when all shares are
there, is the commit mark. Shares hold tensors, numbers, strings, lists and dicts only and load with `weights_only`.
"""

import os
import shutil
from pathlib import Path
from typing import Any

import torch

from paftbench.files import read_json, write_json
from paftbench.ranks import Ranks

MARK = "checkpoint.json"


def save(directory: Path, step: int, ranks: Ranks, state: dict[str, Any]) -> None:
    """Save a trial that has completed `step` steps and drop the checkpoint before; every process must call it."""
    folder = directory / f"checkpoint-{step}"
    folder.mkdir(exist_ok=True)
    path = _share(folder, ranks)
    temporary = path.with_suffix(".tmp")
    with temporary.open("wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    ranks.barrier()
    if ranks.hosts_first:
        write_json(directory / MARK, {"step": step})
        _drop(directory, keep=folder)


def load(directory: Path, ranks: Ranks) -> tuple[int, dict[str, Any]] | None:
    """(completed steps, state) of the newest checkpoint; None where the trial has none."""
    if not (directory / MARK).is_file():
        return None
    step = int(read_json(directory / MARK)["step"])
    path = _share(directory / f"checkpoint-{step}", ranks)
    state: dict[str, Any] = torch.load(path, weights_only=True)
    return step, state


def discard(directory: Path) -> None:
    """Remove the checkpoints of a trial that has finished."""
    (directory / MARK).unlink(missing_ok=True)
    _drop(directory, keep=None)


def _share(folder: Path, ranks: Ranks) -> Path:
    return folder / f"ranks-from-{ranks.local[0]}.pt"


def _drop(directory: Path, keep: Path | None) -> None:
    for folder in directory.glob("checkpoint-*"):
        if folder != keep:
            shutil.rmtree(folder)
