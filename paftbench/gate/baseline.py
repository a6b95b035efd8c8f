"""Baseline files: what a sweep gave once, small enough to be reviewed as a diff, and checked before anything runs."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from paftbench.analysis.cells import flat, overhead
from paftbench.analysis.cost import extra_share
from paftbench.analysis.runs import Run, Sweep
from paftbench.errors import Refused
from paftbench.gate.trajectory import end_of, machine_of, tail_of, windows_of
from paftbench.records.door import parse, plain
from paftbench.records.kinds import Count, Number, Text
from paftbench.records.seeds import Seed, parse_seed
from paftbench.store.files import encode_line, read_json, write_text

SCHEMA: Final = 1
_OF_A_RUN = ("seed", "fault_seed")
_OF_A_MACHINE = ("device",)


@dataclass(frozen=True, kw_only=True)
class BaselineEntry:
    """One trial of a baseline: `quality` is its tail by the judge, `windows` and `end` are hashes."""

    outcome: Text
    quality: Number | None
    divergence: Number | None
    extra_bytes: Number | None
    overhead: Number | None
    strikes: Count | None
    windows: tuple[Text, ...]
    end: Text


@dataclass(frozen=True, kw_only=True)
class BaselineCell:
    """What is a cell's own: its metric, the fields of its trials by dotted path, and a trial by seed."""

    metric: Text
    trial: dict[str, Any]
    seeds: dict[str, BaselineEntry]


@dataclass(frozen=True, kw_only=True)
class Made:
    """What made a baseline."""

    paftbench: str | None
    python: str | None


@dataclass(frozen=True, kw_only=True)
class Kept:
    """A baseline file; `trial` holds the fields that all trials share, by dotted path."""

    schema: int = SCHEMA
    experiment: Text
    judge: Text
    machine: dict[str, Any]
    made: Any = None
    data: dict[Text, Text]
    trial: dict[str, Any]
    cells: dict[str, BaselineCell]


@dataclass(frozen=True, kw_only=True)
class Baseline(Kept):
    """One that was read from `source`."""

    source: str

    @cached_property
    def entries(self) -> dict[tuple[str, Seed], BaselineEntry]:
        """By the cell's name and the seed; `ValueError` for what is no seed."""
        return {
            (name, self._seed(name, text)): own for name, cell in self.cells.items() for text, own in cell.seeds.items()
        }

    def _seed(self, cell: str, text: str) -> Seed:
        if (seed := parse_seed(text)) is None:
            raise Refused(f"{self.source}: {cell}: a seed must be a number, or two as in 0-f100, got {text!r}")
        return seed

    def entry(self, run: Run) -> BaselineEntry:
        return self.entries[cell_name(run), run.sample]


def cell_name(run: Run) -> str:
    """A trial's name without its seed."""
    return run.name.rpartition("/s")[0]


def make(sweep: Sweep) -> Kept:
    """What a finished sweep is kept as.

    `ValueError` where a trial has not finished or ended in error, or where trials come from several machines.
    """
    for run in sweep.selected:
        if run.outcome in ("missing", "error"):
            raise Refused(f"no baseline is written: {run.name} {_ENDED[run.outcome]}")
    machines = {encode_line(machine_of(run)) for run in sweep.selected}
    if len(machines) > 1:
        raise Refused("no baseline is written: the trials come from several machines; run them with --force")
    first, environment = sweep.selected[0], sweep.selected[0].found.environment
    fields = {cell_name(run): _fields(run) for run in sweep.selected}
    common = {key: value for key, value in fields[cell_name(first)].items() if _is_common(key, value, fields)}
    cells: dict[str, BaselineCell] = {}
    metrics = _metrics(sweep.selected)
    for run in sweep.selected:
        name = cell_name(run)
        own = {key: value for key, value in fields[name].items() if key not in common}
        cell = cells.setdefault(name, BaselineCell(metric=metrics.get(name, ""), trial=own, seeds={}))
        cell.seeds[str(run.sample)] = _entry(sweep, run)
    return Kept(
        experiment=first.planned.experiment,
        judge=first.judge,
        machine=machine_of(first),
        made=Made(paftbench=environment.version("paftbench"), python=environment.python),
        data=_data(sweep.selected),
        trial=common,
        cells=cells,
    )


def write(path: Path, baseline: Kept) -> None:
    """A line per field, cell and seed: what has changed is what a diff shows."""
    write_text(path, _text(plain(baseline), depth=4) + "\n")


def read(path: Path) -> Baseline:
    """`ValueError` of one line for a file that is no baseline, or one of another schema."""
    values = read_json(path)
    if values.get("schema") != SCHEMA:
        raise Refused(f"{path} has schema {values.get('schema')!r}; this version reads baselines of schema {SCHEMA}")
    baseline = Baseline(**vars(parse(Kept, values, str(path))), source=str(path))
    _ = baseline.entries  # a seed that is none is refused here
    return baseline


def check_fits(baseline: Baseline, sweep: Sweep, again: str) -> None:
    """`ValueError` of one line unless the sweep is what the baseline was made from; it need not have run.

    Experiment, data and every field of every trial must be the same; the device may differ. `again` is the command that
    makes the baseline anew.
    """
    first = sweep.selected[0]
    experiment, anew = first.planned.experiment, f"make it anew with: {again}"
    if baseline.experiment != experiment:
        raise Refused(f"{baseline.source} is a baseline of {baseline.experiment}, not of {experiment}")
    if baseline.judge != first.judge:
        raise Refused(f"{baseline.source} was judged by {baseline.judge}, this by {first.judge}; {anew}")
    for name, sha256 in _data(sweep.selected).items():
        if baseline.data.get(name) != sha256:
            known = str(baseline.data.get(name, "no such data"))[:12]
            raise Refused(f"{baseline.source} is of other data: {name} was {known}, is {sha256[:12]}; {anew}")
    wanted = {(cell_name(run), run.sample): run for run in sweep.selected}
    for key, run in wanted.items():
        if key[0] in baseline.cells:
            _check_fields(baseline, run, anew)
        if key not in baseline.entries:
            raise Refused(f"{baseline.source} has no trial {run.name}; {anew}")
    for name, seed in baseline.entries:
        if (name, seed) not in wanted:
            raise Refused(f"{baseline.source} has a trial {name}/s{seed}, which this sweep has not; {anew}")


def _check_fields(baseline: Baseline, run: Run, anew: str) -> None:
    then = {**baseline.trial, **baseline.cells[cell_name(run)].trial}
    now = _fields(run)
    for field in dict.fromkeys([*now, *then]):
        if now.get(field) != then.get(field):
            was, now_is = encode_line({"": then.get(field)})[4:-2], encode_line({"": now.get(field)})[4:-2]
            raise Refused(f"{baseline.source}: {run.name}: {field} was {was}, is {now_is}; {anew}")


_ENDED: Final = {"missing": "has not run", "error": "ended in error"}


def _metrics(runs: Sequence[Run]) -> dict[str, str]:
    """What each cell's runs are measured by; a cell in which all broke down has no such name."""
    found: dict[str, str] = {}
    for run in runs:
        if name := run.found.metric.name:
            found.setdefault(cell_name(run), name)
    return found


def _entry(sweep: Sweep, run: Run) -> BaselineEntry:
    return BaselineEntry(
        outcome=run.outcome,
        quality=tail_of(run),
        divergence=run.found.divergence.max,
        extra_bytes=extra_share(run),
        overhead=overhead(sweep, run),
        strikes=run.found.strikes.drawn,
        windows=tuple(window.sha256 for window in windows_of(run)),
        end=end_of(run),
    )


def _fields(run: Run) -> dict[str, Any]:
    """A trial's fields by dotted path, but for its seeds; a `fault_seed` that all runs of its cell share is a field."""
    fields = {key: value for key, value in flat(run.trial.fields).items() if key not in (*_OF_A_RUN, *_OF_A_MACHINE)}
    own = run.trial.fault_seed
    return fields | {"fault_seed": None if own in (run.seed, run.sample.fault_seed) else own}


def _is_common(key: str, value: Any, fields: Mapping[str, Mapping[str, Any]]) -> bool:
    return all(key in other and other[key] == value for other in fields.values())


def _data(runs: Sequence[Run]) -> dict[str, str]:
    return {run.planned.data.name: run.planned.data.sha256 for run in runs}


def _text(value: Any, depth: int, indent: str = "") -> str:
    """JSON with a line for every item down to `depth`."""
    if depth == 0 or not isinstance(value, Mapping) or not value:
        return json.dumps(json.loads(encode_line({"": value})[4:-2]), allow_nan=False)
    inner = indent + " "
    lines = [f"{inner}{json.dumps(str(key))}: {_text(item, depth - 1, inner)}" for key, item in value.items()]
    return "{\n" + ",\n".join(lines) + f"\n{indent}}}"
