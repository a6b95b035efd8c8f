"""The records of a trial, each with the shape that all who read it rely on; what else stands in one is let be.

Every check is silent or a `ValueError` of one line that names the file and the field.
"""

import re
from collections.abc import Mapping
from itertools import pairwise
from typing import Any, Final, Literal, get_args

from paftbench.errors import Refused
from paftbench.records.outcome import FAILED, OUTCOMES
from paftbench.records.shape import (
    ANY_TEXT,
    COUNT,
    FINITE,
    FLAG,
    NUMBER,
    POSITIVE,
    SCALAR,
    TEXT,
    Each,
    Fields,
    Kind,
    Maybe,
    Table,
    is_text,
    one_of,
    refused,
)

SCHEMA: Final = 1
Label = str | int | float | bool | None
Judge = Literal["mean_model", "worst_rank", "rank0"]
VIEWS: Final = get_args(Judge)

# A trial's directory and files of its figures are named after it.
_ID = Kind("letters and digits", frozenset({str}), lambda value: re.fullmatch(r"[\w-]{1,64}", value, re.A) is not None)
_NULL_OR: Final = {kind: kind.or_null() for kind in (COUNT, FLAG, NUMBER, POSITIVE, TEXT, ANY_TEXT, _ID)}
_SCHEDULES: Final[Mapping[str, Mapping[str, Kind]]] = {"probability": {"p": FINITE}, "burst": {"every": POSITIVE}}
_WHOLE: Final = ("offset", "length")  # of a burst, where they are not left out


def _is_schedule(value: Any) -> bool:
    if type(value) is str:
        return is_text(value)
    kind = value.get("kind")
    needed = _SCHEDULES.get(kind, {}) if TEXT.fits(kind) else {"kind": TEXT}
    return all(own.fits(value.get(key)) for key, own in needed.items()) and all(
        type(value[key]) is int for key in _WHOLE if key in value
    )


def _are_ranks(value: Any) -> bool:
    if type(value) is dict:
        return COUNT.fits(value.get("random"))
    return type(value) is str or all(map(COUNT.fits, value))


_FAULT: Final = Fields(
    needed={"name": TEXT, "model": TEXT},
    known={
        "degree": FINITE, "unit": TEXT, "site": TEXT,
        "ranks": Kind("all, a list of ranks or {random: k}", frozenset({str, list, dict}), _are_ranks),
        "schedule": Kind("a schedule", frozenset({str, dict}), _is_schedule),
    },
)  # fmt: skip
_PLUGIN: Final = Fields(needed={"name": TEXT}, known={})  # of anybody's, with fields of any kind
_TRIAL: Final = Fields(
    needed={
        "workload": _PLUGIN,
        "world_size": POSITIVE,
        "steps": POSITIVE,
        "optimizer": Fields({"name": TEXT, "lr": FINITE}, dict.fromkeys(("momentum", "weight_decay"), FINITE)),
        "seed": COUNT,
        "faults": Each(_FAULT),
        "mitigations": Each(_PLUGIN),
    },
    known={
        "precision": one_of(("fp64", "fp32", "bf16", "fp16")),
        **dict.fromkeys(("placement", "device"), TEXT), "exact": FLAG, "batch_per_rank": POSITIVE,
        **dict.fromkeys(("procs", "fault_seed"), _NULL_OR[COUNT]),
    },
)  # fmt: skip
_PLAN: Final = Fields(
    needed={
        "id": _ID, "name": TEXT, "experiment": TEXT, "grid": TEXT, "labels": Table(SCALAR), "golden_id": _NULL_OR[_ID],
        "judge": one_of(VIEWS), "tolerance": FINITE, "plugins": Each(ANY_TEXT), "sources": Table(TEXT),
        "data": Fields({"name": TEXT, "sha256": TEXT}, {}), "trial": _TRIAL,
    },
    known={},
)  # fmt: skip

_ENVIRONMENT: Final = Fields(
    needed={},
    known={
        "versions": Table(_NULL_OR[TEXT]), "git": Maybe(Fields({"sha": TEXT}, {"dirty": FLAG})),
        **dict.fromkeys(("processor", "libraries", "bits", "switches"), Maybe(Table(ANY_TEXT))),
        "argv": Each(ANY_TEXT), "gpus": Each(TEXT), **dict.fromkeys(("cpus", "threads"), _NULL_OR[COUNT]),
        **dict.fromkeys(("python", "platform", "cpu_capability"), _NULL_OR[TEXT]),
    },
)  # fmt: skip
_STRIKES: Final = ("drawn", "landed", "changed")
_WORDS: Final[Mapping[str, Kind]] = {"name": TEXT, "direction": one_of(("max", "min"))}
_NUMBERS: Final = ("chance", *VIEWS)
_MEASURED: Final = {
    "divergence": ("final", "max", "before_sync"),
    **dict.fromkeys(("inconsistency", "nsr"), ("median", "max")),
}
_RESULT: Final = Fields(
    needed={
        "id": _ID,
        "outcome": one_of(OUTCOMES),
        "metric": Fields(
            {},
            {**{key: kind.or_null() for key, kind in _WORDS.items()},
             **dict.fromkeys((*_NUMBERS, "untrained"), _NULL_OR[NUMBER]), "examples": _NULL_OR[POSITIVE]},
        ),
        "history": Fields({}, {"step": Each(COUNT), **dict.fromkeys(VIEWS, Each(NUMBER))}),
        **{name: Fields({}, dict.fromkeys(parts, _NULL_OR[NUMBER])) for name, parts in _MEASURED.items()},
        "strikes": Fields({}, dict.fromkeys(_STRIKES, _NULL_OR[COUNT])),
        "mitigation": Fields(
            {},
            {"periods": Each(FINITE),
             **dict.fromkeys(("syncs", "bytes", "collectives", "memory_bytes"), _NULL_OR[COUNT])},
        ),
        "time": Fields(
            {},
            {"overhead_valid": FLAG, "sections": Table(NUMBER),
             **dict.fromkeys(("step_median_s", "step_max_s", "total_s"), _NULL_OR[NUMBER])},
        ),
        "environment": _ENVIRONMENT,
    },
    known={
        "reason": _NULL_OR[ANY_TEXT], "bitwise_identical": _NULL_OR[FLAG], "stopped_at": _NULL_OR[POSITIVE],
        **dict.fromkeys(("gradient_bytes", "parameters"), _NULL_OR[COUNT]), "params_sha256": Each(TEXT),
    },
)  # fmt: skip
# A trial that ended by itself has all that it is judged by.
_JUDGED: Final = Fields(
    {
        "strikes": Fields(dict.fromkeys(_STRIKES, COUNT), {}),
        "metric": Fields({**_WORDS, **dict.fromkeys(_NUMBERS, NUMBER)}, {}),
    },
    {},
)

_DECISION: Final = Fields(
    {"period": FINITE, "period_before": FINITE, "sigma": _NULL_OR[NUMBER]}, {"layer": _NULL_OR[TEXT], "rule": TEXT}
)
_STEP: Final = Fields(
    needed={"step": COUNT, "loss": Each(NUMBER), "lr": NUMBER, "divergence": _NULL_OR[NUMBER]},
    known={
        **dict.fromkeys(
            ("divergence_before", "inconsistency", "nsr", "grad_norm", "strikes", "period"), _NULL_OR[NUMBER]
        ),
        "synced": _NULL_OR[FLAG], "seconds": Maybe(Table(NUMBER)), "decision": Maybe(_DECISION),
    },
)  # fmt: skip
_INJECTION: Final = Fields(
    needed={"step": COUNT, "rank": COUNT, "site": TEXT, "landed": FLAG},
    known={
        **dict.fromkeys(("value_before", "value_after", "norm"), _NULL_OR[NUMBER]), "elements": _NULL_OR[COUNT],
        "bit": Kind("a bit, a list of bits or null", frozenset({int, list, type(None)}), lambda value: value is None
                    or all(map(COUNT.fits, value if type(value) is list else [value]))),
        "bits_before": _NULL_OR[TEXT], **dict.fromkeys(("fault", "parameter"), _NULL_OR[TEXT]),
    },
)  # fmt: skip
_FAILURE: Final = Fields({}, {"strikes": COUNT, "part": _NULL_OR[TEXT], **dict.fromkeys(("reason", "trace"), ANY_TEXT)})


def check_schema(values: Mapping[str, Any], where: str) -> None:
    """Records of another schema may mean anything."""
    if values.get("schema") != SCHEMA:
        raise Refused(f"{where} has schema {values.get('schema')!r}; this version reads schema {SCHEMA}")


def check_plan(values: Mapping[str, Any], where: str) -> None:
    """`trial.json`."""
    check_schema(values, where)
    _PLAN.check(values, where)


def check_result(values: Mapping[str, Any], where: str) -> None:
    """`result.json`."""
    check_schema(values, where)
    _RESULT.check(values, where)
    if values["outcome"] not in FAILED:
        _JUDGED.check(values, where)
    history = values["history"]
    steps = history.get("step", [])
    if any(later <= earlier for earlier, later in pairwise(steps)):
        raise refused(where, "history.step", "must rise", steps)
    for view in VIEWS:
        if len(history.get(view, [])) != len(steps):
            raise refused(where, f"history.{view}", "must hold a number for each of its steps", history.get(view))


def check_step(row: Mapping[str, Any], trial: Mapping[str, Any], where: str) -> None:
    """A row of `steps.jsonl` of a trial with these fields."""
    _STEP.check(row, where)
    if not row["loss"]:
        raise Refused(f"{where}: loss must hold a number per rank, got none")
    if row["step"] >= trial["steps"]:
        raise refused(where, "step", f"must be below the trial's {trial['steps']}", row["step"])


def check_injection(row: Mapping[str, Any], trial: Mapping[str, Any], where: str) -> None:
    """A row of `injections.jsonl` of a trial with these fields."""
    _INJECTION.check(row, where)
    for key, limit in (("rank", trial["world_size"]), ("step", trial["steps"])):
        if row[key] >= limit:
            raise refused(where, key, f"must be below the trial's {limit}", row[key])


def check_failure(values: Mapping[str, Any], where: str) -> None:
    """`failure.json`."""
    _FAILURE.check(values, where)
