"""What `check` runs and what it keeps: a gate must not pass on what other code gave."""

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from paftbench.cli import sweeping
from paftbench.cli.options import message

if TYPE_CHECKING:
    from paftbench.store.directory import Planned, TrialRecord
    from paftbench.sweep.engines.engine import Engine
    from paftbench.sweep.sweep import Policy


def with_plugin_files(planned: Sequence["Planned"]) -> list["Planned"]:
    """The trials with the content of `--plugin` files among their sources.

    Every process of a trial runs those files, which may change anything, not only the plugins that the trial uses: a
    result from before one was edited is stale.
    """
    contents = [Path(path).read_bytes() for path in planned[0].plugins]
    if not contents:
        return list(planned)
    digest = hashlib.sha256(b"\0".join(contents)).hexdigest()
    return [replace(item, sources=item.sources | {"--plugin": digest}) for item in planned]


def run_missing(root: Path, planned: Sequence["Planned"], policy: "Policy", engine: "Engine") -> list["Planned"]:
    """Run what is missing, stale, or was made with other plugin files; the trials whose results are kept."""
    records = sweeping.records_of(root, planned)
    others = [item for item in planned if _has_other_plugins(item, records[item.id])]
    if others and not policy.force:
        message(f"{len(others)} results were made with other plugin files; they run again")
        sweeping.ran(root, others, replace(policy, force=True), engine)
    sweep = sweeping.ran(root, planned, policy, engine)
    again = {item.id for item in others}
    return [item for item in planned if item.id not in again and not policy.runs(sweep.states[item.id])]


def warn_of_older(kept: Sequence["Planned"], records: dict[str, "TrialRecord | None"], command: str) -> None:
    """Say on stderr where results that did not run again come from other code than this."""
    from paftbench.gate.origin import older
    from paftbench.records.environment import present

    found = [(item, record) for item in kept if (record := records[item.id]) is not None and record.result is not None]
    line = older([record.result for _, record in found if record.result], present(), command) if found else ""
    if line:
        message(f"paftbench: warning: {line}")
    counts = {
        "with other plugin files": sum(_has_other_plugins(item, record) for item, record in found),
        "before a plugin was changed": sum(record.planned.sources != item.sources for item, record in found),
    }
    for what, count in counts.items():
        if count:
            kept_ones = f"{count} of {len(found)} results kept from before were made {what}"
            message(f"paftbench: warning: {kept_ones}; {command} --force runs them again")


def _has_other_plugins(item: "Planned", record: "TrialRecord | None") -> bool:
    return record is not None and record.result is not None and record.planned.plugins != item.plugins
