"""Trial directories: what was planned, what came out. Importable without torch.

A directory holds `trial.json` (the plan), `steps.jsonl`, `injections.jsonl`, `log.txt`, and `result.json`, which is
written last: it exists if and only if the trial is done.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from paftbench.claim import Claim, claim, is_claimed, try_claim
from paftbench.files import encode_line, read_json, read_lines, write_json
from paftbench.shape import LIST, MAPPING, NUMBER, NUMBER_OR_NONE, TEXT, Kinds, require, require_each

if TYPE_CHECKING:
    from paftbench.config import Trial
    from paftbench.workloads.contract import DataId

__all__ = [
    "SCHEMA", "Claim", "Judge", "Label", "Planned", "TrialRecord", "claim", "encode_line", "find_trials", "is_claimed",
    "read_json", "read_lines", "read_planned", "read_record", "read_results", "try_claim", "write_failure",
    "write_json", "write_planned",
]  # fmt: skip

SCHEMA = 1
TRIAL, RESULT, FAILURE = "trial.json", "result.json", "failure.json"
CHECKPOINT = "checkpoint.json"  # the mark of one that is whole
FULL = ".full.json"  # a failure written beforehand: where the disk is full it can still be renamed
NOT_OF_THE_STEP = frozenset({"measure", "evaluate", "inject"})  # in `seconds` of steps.jsonl
STEPS, INJECTIONS, LOG = "steps.jsonl", "injections.jsonl", "log.txt"

_NEEDED_PLAN = {
    "id": TEXT, "name": TEXT, "experiment": TEXT, "grid": TEXT, "labels": MAPPING, "golden_id": (str, type(None)),
    "judge": TEXT, "tolerance": NUMBER, "plugins": LIST, "sources": MAPPING, "trial": MAPPING,
}  # fmt: skip
_NEEDED_TRIAL = {
    "workload": MAPPING, "world_size": (int,), "steps": (int,), "optimizer": MAPPING, "seed": (int,), "faults": LIST,
    "mitigations": LIST,
}  # fmt: skip
_NUMBERS = ("divergence", "inconsistency", "nsr", "strikes")  # mappings of result.json that hold nothing else
_SECTIONS = ("metric", "history", *_NUMBERS, "mitigation", "time", "environment")

Label = str | int | float | bool | None
Judge = Literal["mean_model", "worst_rank", "rank0"]


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
        own = {key: getattr(self, key) for key in self.__dataclass_fields__ if key not in ("data", "trial")}
        own["plugins"] = list(self.plugins)
        return {"schema": SCHEMA, **own, "data": asdict(self.data), "trial": self.trial.spec()}


@dataclass(frozen=True, kw_only=True)
class TrialRecord:
    """A trial directory as plain mappings: `planned` is `trial.json`, `result` is `None` until the trial is done."""

    path: Path
    planned: dict[str, Any]
    result: dict[str, Any] | None

    @property
    def id(self) -> str:
        return str(self.planned["id"])

    def steps(self) -> Iterator[dict[str, Any]]:
        """Rows of `steps.jsonl`."""
        return read_lines(self.path / STEPS)

    def injections(self) -> Iterator[dict[str, Any]]:
        """Rows of `injections.jsonl`."""
        return read_lines(self.path / INJECTIONS)


def write_planned(directory: Path, planned: Planned) -> None:
    """Create a trial directory, or rewrite its plan."""
    directory.mkdir(parents=True, exist_ok=True)
    write_json(directory / TRIAL, planned.spec())


def read_planned(directory: Path) -> Planned:
    """The plan of a trial directory, its plugin files registered first."""
    from paftbench.config import parse_trial
    from paftbench.plugins import load_file
    from paftbench.workloads.contract import DataId

    path = directory / TRIAL
    values = _checked(path, {})
    for plugin in values["plugins"]:
        load_file(Path(plugin))
    own = {key: values[key] for key in Planned.__dataclass_fields__}
    own["plugins"] = tuple(values["plugins"])
    own["data"] = DataId(**values["data"])
    own["trial"] = parse_trial(values["trial"], str(path))
    return Planned(**own)


def find_trials(directory: Path) -> list[Path]:
    """Trial directories in a sweep directory, or the directory itself where it is one trial's."""
    if not directory.is_dir():
        raise LookupError(f"{directory} is not a directory of results")
    if (directory / TRIAL).is_file():
        return [directory]
    for pattern in (f"*/{TRIAL}", f"**/{TRIAL}"):
        found = [path.parent for path in sorted(directory.glob(pattern))]
        visible = [path for path in found if not any(p.startswith(".") for p in path.relative_to(directory).parts)]
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
        raise LookupError(f"{directory} holds no trials")
    return sorted(records, key=lambda record: (record.planned["grid"] != "golden", record.planned["name"]))


def _without_plan(directory: Path, found: Sequence[Path]) -> list[Path]:
    """Directories that have a result and no plan: half a trial, which cannot be told from a lost one."""
    around = {path.parent for path in found if path != directory} or ({directory} if not found else set())
    candidates = [directory / RESULT, *(path for place in sorted(around) for path in sorted(place.glob(f"*/{RESULT}")))]
    halves = [path.parent for path in candidates if path.is_file() and not (path.parent / TRIAL).is_file()]
    return [path for path in halves if not path.name.startswith(".")]


def read_record(directory: Path) -> TrialRecord:
    """One trial directory; `ValueError` where a record lacks what every reader of it needs."""
    path, result = directory / TRIAL, directory / RESULT
    planned = _checked(path, _NEEDED_PLAN)
    _check_trial(planned, path)
    found = _checked(result, {"outcome": TEXT}) if result.exists() else None
    if found is not None:
        _check_result(found, result)
    return TrialRecord(path=directory, planned=planned, result=found)


def _check_trial(planned: Mapping[str, Any], path: Path) -> None:
    trial, judges = planned["trial"], get_args(Judge)
    if planned["judge"] not in judges:
        raise ValueError(f"{path}: judge must be one of {', '.join(judges)}, got {planned['judge']!r}")
    require(trial, _NEEDED_TRIAL, f"{path}: trial")
    require(trial["workload"], {"name": TEXT}, f"{path}: workload")
    require(trial["optimizer"], {"name": TEXT, "lr": NUMBER}, f"{path}: optimizer")
    for fault in trial["faults"]:
        require(fault, {"name": TEXT, "model": TEXT}, f"{path}: a fault")
    for mitigation in trial["mitigations"]:
        require(mitigation, {"name": TEXT}, f"{path}: a mitigation")


def _check_result(result: Mapping[str, Any], path: Path) -> None:
    for name in _SECTIONS:
        if result.get(name) is not None:
            require(result[name], {}, f"{path}: {name}")
    for name in _NUMBERS:
        require_each(result.get(name) or {}, NUMBER_OR_NONE, f"{path}: {name}")
    metric, history = result.get("metric") or {}, result.get("history") or {}
    views = {view: metric.get(view) for view in ("chance", "untrained", *get_args(Judge))}
    require_each(views, NUMBER_OR_NONE, f"{path}: metric")
    require_each(history, LIST, f"{path}: history")


def _checked(path: Path, needed: Mapping[str, Kinds]) -> dict[str, Any]:
    try:
        values = read_json(path)
    except FileNotFoundError:
        raise LookupError(f"{path.parent} is not a trial directory: it has no {path.name}") from None
    if values.get("schema") != SCHEMA:
        raise ValueError(f"{path} has schema {values.get('schema')!r}; this version reads schema {SCHEMA}")
    require(values, needed, f"{path} is no record of a trial: it")
    return values


def write_failure(
    directory: Path,
    outcome: str,
    reason: str,
    *,
    strikes: Mapping[str, int] | None = None,
    total_s: float | None = None,
    check: Callable[[], None] | None = None,
) -> None:
    """`result.json` of a trial whose process could not write its own: crashed, hung or error."""
    from paftbench.environment import environment

    planned = _checked(directory / TRIAL, {})
    trial = planned["trial"]
    counts = {key: (strikes or {}).get(key) for key in ("drawn", "landed", "changed")}
    metric = ("name", "direction", "chance", "untrained", "mean_model", "worst_rank", "rank0")
    result = {
        "schema": SCHEMA,
        **{key: planned[key] for key in ("id", "name", "experiment", "grid", "labels")},
        "outcome": outcome,
        "reason": reason,
        "bitwise_identical": None,
        "golden_id": planned["golden_id"],
        "metric": dict.fromkeys(metric),
        "stopped_at": None,
        "history": {"step": [], "mean_model": [], "worst_rank": [], "rank0": []},
        "divergence": dict.fromkeys(("final", "max", "before_sync")),
        "inconsistency": dict.fromkeys(("median", "max")),
        "nsr": dict.fromkeys(("median", "max")),
        "strikes": counts,
        "mitigation": {"syncs": None, "periods": [], **dict.fromkeys(("bytes", "collectives", "memory_bytes"))},
        "gradient_bytes": None,
        "time": {
            "step_median_s": None, "step_max_s": None, "total_s": total_s, "overhead_valid": False, "sections": {},
        },
        "params_sha256": [],
        "seeds": {"seed": trial["seed"], "fault_seed": trial["fault_seed"]},
        "data": planned["data"],
        "parameters": None,
        "environment": environment(),
    }  # fmt: skip
    write_json(directory / RESULT, result, check=check)
