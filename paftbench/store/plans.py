"""A sweep's trials on disk: what is known of each, their plans, and what sweeps that were killed have left behind."""

import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Literal

from paftbench.errors import Refused
from paftbench.store.claim import claimed_names, try_claim
from paftbench.store.directory import (
    CHECKPOINTS,
    FAILURE,
    FULL,
    INJECTIONS,
    LOG,
    RESULT,
    STEPS,
    TRIAL,
    Planned,
    TrialRecord,
    read_record,
)
from paftbench.store.files import drop_temporaries, encode_line, read_json, sync, write_json

TrialState = Literal["done", "stale", "error", "missing"]
_RERUN = ".rerun-"
_FILES = (TRIAL, FAILURE, STEPS, INJECTIONS, LOG, RESULT)
_OF_THE_HOLDER = (FAILURE, STEPS, INJECTIONS, RESULT)


def known_record(directory: Path, planned: Planned) -> TrialRecord | None:
    """What a directory holds of a planned trial; `None` where it holds nothing yet.

    `ValueError` for records of another schema or of another trial, and for a result without the plan it came from.
    """
    plan, result = directory / TRIAL, directory / RESULT
    if not result.exists() and (not plan.is_file() or _is_blank(plan)):
        return None
    if not plan.is_file():
        raise Refused(f"{directory} is half a trial directory: it has {RESULT} and no {TRIAL}")
    record = read_record(directory)
    if record.id != planned.id:
        raise Refused(f"{directory} holds the trial {record.id}; it was renamed or copied")
    return record


def _is_blank(path: Path) -> bool:
    """What a power failure leaves of a file that was not synced."""
    return not path.read_bytes().strip(b"\0 \n")


def state_of(record: TrialRecord | None, planned: Planned) -> TrialState:
    """What is known of a planned trial; stale: a plugin's source has changed since."""
    if record is None or record.result is None:
        return "missing"
    if record.result.outcome == "error":
        return "error"
    return "done" if record.planned.sources == planned.sources else "stale"


def with_goldens(selected: Sequence[Planned], everything: Iterable[Planned]) -> list[Planned]:
    """The selected trials, and before them the golden runs they are judged by."""
    needed = {item.golden_id for item in selected} | {item.id for item in selected}
    return [item for item in everything if item.id in needed]


def write_plan(directory: Path, planned: Planned, record: TrialRecord | None) -> None:
    """The plan of a trial; an edited experiment may name a finished one anew, but what it ran with stays.

    Not synced yet: a plan that is lost before its trial starts is made again, and a large sweep would wait for seconds.
    """
    new = planned.spec()
    if record is not None:
        if record.result is not None:
            new.update(sources=record.planned.sources, plugins=record.planned.plugins)
        if encode_line(new) == encode_line(read_json(directory / TRIAL)):
            return
        drop_temporaries(directory)
    directory.mkdir(parents=True, exist_ok=True)
    write_json(directory / TRIAL, new, durable=False)


def rerun_directory(directory: Path, token: str) -> Path:
    """Where a finished trial runs again under a claim: its old result stays where it is until the new one is there.

    No other holder of the trial has the same, so that what a lost one still writes there reaches nobody.
    """
    return directory.with_name(f"{_RERUN}{directory.name}.{token}")


def adopt(rerun: Path, directory: Path) -> None:
    """Put the files of a finished re-run in the place of the older ones, each at once and the result last.

    A trial that is done stays done at every moment. After a kill a second call goes on where the first was cut off.
    """
    directory.mkdir(exist_ok=True)
    missing = [name for name in _FILES if not (rerun / name).is_file()]
    if TRIAL not in missing and (rerun / TRIAL).is_file():  # it is moved first: what is missing now was never there
        for name in missing:
            (directory / name).unlink(missing_ok=True)
    for name in _FILES:
        if (rerun / name).is_file():
            os.replace(rerun / name, directory / name)
    sync(directory)
    shutil.rmtree(rerun, ignore_errors=True)


def tidy(root: Path) -> None:
    """Finish or remove what killed sweeps have left in `root`, but for the trials that others are running."""
    reruns = {path.name.removeprefix(_RERUN).rpartition(".")[0] for path in root.glob(f"{_RERUN}*.*")}
    for name in sorted(reruns | claimed_names(root)):
        directory = root / name
        claim = try_claim(directory)
        if claim is None:
            continue
        try:
            settle(directory)
        finally:
            claim.release()


def settle(directory: Path) -> None:
    """Finish or remove what the last holder of a trial has left; only for who has claimed it."""
    for rerun in _reruns(directory):
        if (rerun / RESULT).is_file():
            adopt(rerun, directory)
        shutil.rmtree(rerun, ignore_errors=True)
    drop_temporaries(directory, owned=_OF_THE_HOLDER)
    (directory / FULL).unlink(missing_ok=True)
    for unfinished in (directory / CHECKPOINTS).glob(".*.tmp"):
        shutil.rmtree(unfinished, ignore_errors=True)


def _reruns(directory: Path) -> Iterator[Path]:
    return directory.parent.glob(f"{_RERUN}{directory.name}.*")
