"""The checkpoint of an unfinished trial, from which it continues bitwise.

It is published when all shares and all rows of before are durable, and says how long the row files were.
"""

import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from paftbench.errors import Refused
from paftbench.ranks.axis import Ranks
from paftbench.records.door import parse
from paftbench.resilience.checkpoints import Checkpoints, Saver, opened_in
from paftbench.resilience.fence import allowed
from paftbench.store.directory import CHECKPOINTS, INJECTIONS, STEPS
from paftbench.store.files import sync
from paftbench.store.lease import Lease
from paftbench.store.rows import Extent

_ROWS: Final = "rows"


@dataclass(frozen=True, kw_only=True)
class Saved:
    """A trial that had completed `step` steps: this process's state, and how much of the row files there was then."""

    step: int
    state: dict[str, Any]
    rows: dict[str, Extent]


def saver_of(directory: Path, ranks: Ranks, lease: Lease | None) -> Saver:
    """What saves a trial's checkpoints; nothing once the `lease` is lost. Every process must call it."""
    config = Checkpoints(keep=1, asynchronous=False)
    return opened_in(directory / CHECKPOINTS, ranks, config, check=allowed if lease is None else lease.check)


def save(saver: Saver, step: int, state: dict[str, Any], rows: Mapping[str, Extent]) -> None:
    """Save a trial that has completed `step` steps and drop the checkpoint before; every process must call it.

    `rows` are those of the process that hosts rank 0.
    """
    sync(saver.shelf.folder.parent)
    saver.save(step, state, {_ROWS: {name: asdict(extent) for name, extent in rows.items()}})


def load(saver: Saver) -> Saved | None:
    """The newest checkpoint; None where the trial has none, `ValueError` where there is one that cannot be read."""
    loaded = saver.load()
    if saver.passed_over:
        path, why = saver.passed_over[0]
        raise Refused(f"the checkpoint cannot be read ({why}); it is set aside as {path}: run again to start over")
    if loaded is None:
        return None
    where = f"the checkpoint of step {loaded.step} in {saver.shelf.folder}"
    rows = loaded.more.get(_ROWS)
    if not isinstance(rows, dict) or not {STEPS, INJECTIONS} <= rows.keys():
        raise Refused(f"{where} does not say how long {STEPS} and {INJECTIONS} were; delete it to start over")
    return Saved(
        step=loaded.step,
        state=loaded.state,
        rows={name: parse(Extent, rows[name], where) for name in (STEPS, INJECTIONS)},
    )


def discard(directory: Path) -> None:
    """Remove the checkpoints of a trial that has finished, and those of earlier versions."""
    for path in directory.glob("checkpoint*"):
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
