"""Where results come from: the commands that made them, and what they ran on."""

import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from paftbench.analysis.runs import Run

COMMAND = "paftbench"
_LEFT_OUT = ("argv",)


@dataclass(frozen=True, kw_only=True)
class Difference:
    """A part of the environment that is not the same for all trials: (value, trials, names of the first few)."""

    name: str
    values: Sequence[tuple[str, int, str]]


@dataclass(frozen=True, kw_only=True)
class Environments:
    """What all trials ran on, and where they differ."""

    common: Mapping[str, str]
    differences: Sequence[Difference]


def commands(runs: Sequence[Run]) -> list[tuple[str, int]]:
    """The recorded commands and how many trials each ran, most first; the experiment's own where none was recorded.

    Processes that a launcher started have recorded the launcher's arguments, which nobody types.
    """
    counts = Counter(_command(run) for run in runs if run.result is not None)
    return counts.most_common()


def _command(run: Run) -> str:
    argv = list(run.found.environment.argv)
    if len(argv) > 1 and argv[0].rpartition("/")[2].removesuffix(".exe") == COMMAND:
        return shlex.join([COMMAND, *argv[1:]])
    plugins = [part for path in run.planned.plugins for part in ("--plugin", path)]
    return shlex.join([COMMAND, "run", run.planned.experiment, *plugins])


def environments(runs: Sequence[Run]) -> Environments:
    """Part by part; a part that some trials did not record is a difference too."""
    found = [(run, dict(_flat(run.found.environment.fields))) for run in runs if run.result is not None]
    names = dict.fromkeys(name for _, parts in found for name in parts)
    common, differences = {}, []
    for name in names:
        by_value: dict[str, list[str]] = {}
        for run, parts in found:
            by_value.setdefault(parts.get(name, "not recorded"), []).append(run.name)
        if len(by_value) == 1:
            common[name] = next(iter(by_value))
        else:
            values = [(value, len(trials), _few(trials)) for value, trials in by_value.items()]
            differences.append(Difference(name=name, values=values))
    return Environments(common=common, differences=differences)


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        elif key not in _LEFT_OUT:
            yield f"{prefix}{key}", _text(value)


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ", ".join(map(str, value)) or "none" if isinstance(value, list) else "none" if value is None else str(value)


def _few(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
