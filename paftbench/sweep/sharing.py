"""Trials that several sweeps have in common: run once, then copied to where else they belong."""

import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

from paftbench.store.directory import FAILURE, INJECTIONS, LOG, RESULT, STEPS, TRIAL, Planned, TrialRecord, try_claim
from paftbench.store.files import read_json, sync, write_json
from paftbench.store.plans import adopt, known_record, rerun_directory, settle, state_of
from paftbench.sweep.interrupt import deferred
from paftbench.sweep.sweep import Policy
from paftbench.training import checkpoint

_NAMES = ("name", "experiment", "grid", "labels", "golden_id")
_JUDGED = ("judge", "tolerance", "golden_id")


def siblings_of(root: Path) -> list[Path]:
    """The other sweep directories beside one."""
    beside = sorted(root.parent.iterdir()) if root.parent.is_dir() else []
    return [path for path in beside if path.is_dir() and path != root and not path.name.startswith(".")]


def shareable(
    root: Path, planned: Iterable[Planned], policy: Policy, siblings: Sequence[Path]
) -> Iterator[tuple[Planned, Path]]:
    """Trials that the policy would run in `root` and that a sibling has done; where."""
    for item in planned:
        if _runs(root / item.id, item, policy):
            found = next((sibling / item.id for sibling in siblings if _usable(sibling / item.id, item)), None)
            if found is not None:
                yield item, found


def share(root: Path, planned: Sequence[Planned], policy: Policy, siblings: Sequence[Path]) -> set[str]:
    """Copy such trials to `root`; the ids of those that are here now.

    A copy is a trial of this sweep: its plan and the names in its result are this sweep's, all else is as it ran, the
    hashes of the sources included. Trials of other sources, in error or judged in another way are not copied, and those
    that another process holds, here or there, are left alone. At no moment is half a copy taken for a result.
    """
    shared = set()
    with deferred() as interrupted:
        for item, source in shareable(root, planned, policy, siblings):
            if interrupted():
                break
            root.mkdir(parents=True, exist_ok=True)
            if _copy(source, root / item.id, item, policy):
                shared.add(item.id)
    return shared


def _runs(directory: Path, item: Planned, policy: Policy) -> bool:
    return policy.runs(state_of(known_record(directory, item), item))


def _usable(source: Path, item: Planned) -> TrialRecord | None:
    """The record of a finished trial that stands for the planned one; `None` where there is none such.

    What cannot be read there is no business of this sweep.
    """
    record = None
    with suppress(ValueError, LookupError):
        record = known_record(source, item) if (source / RESULT).is_file() else None
    if record is None or state_of(record, item) != "done":
        return None
    return record if all(getattr(record.planned, key) == getattr(item, key) for key in _JUDGED) else None


def _copy(source: Path, directory: Path, item: Planned, policy: Policy) -> bool:
    with ExitStack() as held:
        for path in (source, directory):
            claim = try_claim(path)
            if claim is None:
                return False
            held.callback(claim.release)
            if claim.taken_over:
                settle(path)
            token = claim.lease.token
        # Looked at again: neither can change any more.
        record = _usable(source, item)
        if record is None or not _runs(directory, item, policy):
            return False
        copy = rerun_directory(directory, token)
        _write(copy, record, item)
        adopt(copy, directory)
        checkpoint.discard(directory)
        return True


def _write(copy: Path, record: TrialRecord, item: Planned) -> None:
    """A whole trial directory, the result last: without it a sweep that finds the copy throws it away."""
    shutil.rmtree(copy, ignore_errors=True)
    copy.mkdir()
    for name in (STEPS, INJECTIONS, LOG, FAILURE):
        if (record.path / name).is_file():
            shutil.copyfile(record.path / name, copy / name)
            sync(copy / name)
    write_json(copy / TRIAL, item.spec() | {"sources": record.planned.sources, "plugins": record.planned.plugins})
    # As it stands in the file: what this version does not know is copied too.
    write_json(copy / RESULT, read_json(record.path / RESULT) | {key: getattr(item, key) for key in _NAMES})
