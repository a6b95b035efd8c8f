"""Trial directories: what was planned, what came out. Importable without torch.

A directory holds `trial.json` (the plan), `steps.jsonl`, `injections.jsonl`, `log.txt`, and `result.json`, which is
written last: it exists if and only if the trial is done.
"""

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from paftbench.errors import Missing, Refused
from paftbench.records.door import SCHEMA, parse, wrong
from paftbench.records.environment import present
from paftbench.records.failure import Failure
from paftbench.records.injection import InjectionRow
from paftbench.records.kinds import Label
from paftbench.records.plan import Judge, Plan
from paftbench.records.result import Result, StrikeCounts, unmeasured, written
from paftbench.records.roles import GOLDEN
from paftbench.records.step import StepRow
from paftbench.store.claim import HeldTrial, claim, is_claimed, try_claim
from paftbench.store.files import check_inside, encode_line, opened, read_json, read_lines, write_json

if TYPE_CHECKING:
    from paftbench.records.trial import Trial
    from paftbench.workloads.contract import DataId

__all__ = [
    "SCHEMA", "HeldTrial", "Judge", "Planned", "TrialRecord", "claim", "encode_line", "find_trials", "is_claimed",
    "read_failure", "read_json", "read_lines", "read_planned", "read_record", "read_result", "read_results",
    "try_claim", "write_failure", "write_json", "write_planned", "write_result",
]  # fmt: skip

TRIAL, RESULT, FAILURE = "trial.json", "result.json", "failure.json"
CHECKPOINTS = "checkpoints"  # of an unfinished trial
FULL = ".full.json"  # a failure written beforehand: where the disk is full it can still be renamed
T = TypeVar("T")
NOT_OF_THE_STEP = frozenset({"measure", "evaluate", "inject"})  # in `seconds` of steps.jsonl
STEPS, INJECTIONS, LOG = "steps.jsonl", "injections.jsonl", "log.txt"


@dataclass(frozen=True, kw_only=True)
class Planned:
    """One trial of a sweep; `golden_id` is `None` for a golden run and where the experiment has none."""

    id: str
    name: str
    experiment: str
    grid: str
    labels: dict[str, Label]
    golden_id: str | None
    judge: Judge
    tolerance: float
    plugins: tuple[str, ...]
    sources: dict[str, str]
    data: "DataId"
    trial: "Trial"

    def spec(self) -> dict[str, Any]:
        """The content of `trial.json`."""
        own = {key: getattr(self, key) for key in self.__dataclass_fields__}
        return {"schema": SCHEMA, **own, "data": asdict(self.data), "trial": self.trial.spec()}

    def plan(self) -> Plan:
        """The record that readers of `trial.json` get."""
        return parse(Plan, json.loads(json.dumps(self.spec())), self.name)


@dataclass(frozen=True, kw_only=True)
class TrialRecord:
    """A trial directory: `planned` is `trial.json`, `result` is `None` until the trial is done."""

    path: Path
    planned: Plan
    result: Result | None

    @property
    def id(self) -> str:
        return self.planned.id

    def steps(self) -> Iterator[StepRow]:
        """Rows of `steps.jsonl`; `ValueError` where one is damaged."""
        return (step for step, _ in self.step_rows())

    def step_rows(self) -> Iterator[tuple[StepRow, Mapping[str, Any]]]:
        """The same, each beside all that stands in its row."""
        for where, row in self._rows(STEPS):
            step = parse(StepRow, row, where)
            if step.step >= self.planned.trial.steps:
                raise wrong(f"{where}: step", f"must be below the trial's {self.planned.trial.steps}", step.step)
            yield step, row

    def injections(self) -> Iterator[InjectionRow]:
        """Rows of `injections.jsonl`; `ValueError` where one is damaged."""
        trial = self.planned.trial
        for where, row in self._rows(INJECTIONS):
            found = parse(InjectionRow, row, where)
            for key, own, limit in (("rank", found.rank, trial.world_size), ("step", found.step, trial.steps)):
                if own >= limit:
                    raise wrong(f"{where}: {key}", f"must be below the trial's {limit}", own)
            yield found

    def log(self, most: int) -> bytes:
        """The end of what the trial printed, at most so many bytes; nothing where there is no log."""
        path = _own(self.path, LOG)
        if not path.exists():
            return b""
        with opened(path) as file:
            file.seek(max(0, file.seek(0, 2) - most))
            return file.read(most)

    def _rows(self, name: str) -> Iterator[tuple[str, dict[str, Any]]]:
        path = _own(self.path, name)
        for number, row in enumerate(read_lines(path), start=1):
            yield f"{path}, line {number}", row


def write_planned(directory: Path, planned: Planned) -> None:
    """Create a trial directory, or rewrite its plan."""
    directory.mkdir(parents=True, exist_ok=True)
    write_json(directory / TRIAL, planned.spec())


def read_planned(directory: Path) -> Planned:
    """The plan of a trial directory, its plugin files registered first."""
    from paftbench.plugins import load_file
    from paftbench.records.trial import parse_trial
    from paftbench.workloads.contract import DataId

    path = directory / TRIAL
    plan = _read(Plan, path)
    for plugin in plan.plugins:
        load_file(Path(plugin))
    own = {key: getattr(plan, key) for key in Planned.__dataclass_fields__}
    own["data"] = DataId(name=plan.data.name, sha256=plan.data.sha256)
    own["trial"] = parse_trial(plan.trial.fields, str(path))
    return Planned(**own)


def find_trials(directory: Path) -> list[Path]:
    """Trial directories in a sweep directory, or the directory itself where it is one trial's."""
    if not directory.is_dir():
        raise Missing(f"{directory} is not a directory of results")
    if (directory / TRIAL).is_file():
        return [directory]
    for pattern in (f"*/{TRIAL}", f"**/{TRIAL}"):
        found = [path.parent for path in sorted(directory.glob(pattern))]
        visible = [path for path in found if not any(p.startswith(".") for p in path.relative_to(directory).parts)]
        for path in visible:
            if path.is_symlink():
                check_inside(path, directory)
        if visible:
            return visible
    return []


def read_results(directory: Path) -> list[TrialRecord]:
    """Every trial of a sweep directory, or the one of a trial directory, in order of grid and name.

    `LookupError` where there is none, and for a result without its plan; `ValueError` for records of another schema.
    """
    found = find_trials(directory)
    records = [read_record(path) for path in (*found, *_without_plan(directory, found))]
    if not records:
        raise Missing(f"{directory} holds no trials")
    return sorted(records, key=lambda record: (record.planned.grid != GOLDEN, record.planned.name))


def _without_plan(directory: Path, found: Sequence[Path]) -> list[Path]:
    """Directories that have a result and no plan: half a trial, which cannot be told from a lost one."""
    around = {path.parent for path in found if path != directory} or ({directory} if not found else set())
    candidates = [directory / RESULT, *(path for place in sorted(around) for path in sorted(place.glob(f"*/{RESULT}")))]
    halves = [path.parent for path in candidates if path.is_file() and not (path.parent / TRIAL).is_file()]
    return [path for path in halves if not path.name.startswith(".")]


def read_record(directory: Path) -> TrialRecord:
    """One trial directory; `ValueError` where a record lacks what every reader of it needs."""
    planned = _read(Plan, _own(directory, TRIAL))
    result = read_result(directory) if (directory / RESULT).exists() else None
    if result is not None and result.id != planned.id:
        raise Refused(f"{directory / RESULT} is of the trial {result.id}, {TRIAL} beside it of {planned.id}")
    return TrialRecord(path=directory, planned=planned, result=result)


def read_result(directory: Path) -> Result:
    """What became of a trial; `LookupError` where it is not done, `ValueError` where the record is damaged."""
    return _read(Result, _own(directory, RESULT))


def read_failure(directory: Path) -> Failure:
    """What a trial's own process said of its end, if anything."""
    path = directory / FAILURE
    return _read(Failure, path) if path.exists() else Failure()


def _own(directory: Path, name: str) -> Path:
    """A file of a trial, which may be a link, but not to what is none of the sweep's."""
    path = directory / name
    if path.is_symlink():
        check_inside(path, Path(os.path.realpath(directory)).parent)
    return path


def _read(kind: type[T], path: Path) -> T:
    try:
        return parse(kind, read_json(path), str(path))
    except FileNotFoundError:
        raise Missing(f"{path.parent} is not a trial directory: it has no {path.name}") from None


def write_result(directory: Path, result: Result, *, check: Callable[[], None] | None = None) -> None:
    """`result.json`, by which the trial is done."""
    write_json(directory / RESULT, written(result), check=check)


def write_failure(
    directory: Path,
    outcome: str,
    reason: str,
    *,
    strikes: StrikeCounts | None = None,
    total_s: float | None = None,
    check: Callable[[], None] | None = None,
) -> None:
    """`result.json` of a trial whose process could not write its own: crashed, hung or error."""
    result = unmeasured(_read(Plan, directory / TRIAL), outcome, reason)
    result = replace(
        result,
        strikes=strikes or result.strikes,
        mitigation=replace(result.mitigation, periods=()),
        time=replace(result.time, total_s=total_s, overhead_valid=False),
        environment=present(),
    )
    write_result(directory, result, check=check)
