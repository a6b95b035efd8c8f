"""A trial's logs, each row held to what tables and figures read of it. Errors are a `ValueError` of one line."""

from collections.abc import Iterator
from typing import Any

from paftbench.shape import LIST, NUMBER, NUMBER_OR_NONE, TEXT, require, require_each
from paftbench.store import INJECTIONS, STEPS, TrialRecord

_STEP = {"step": (int,), "loss": LIST, "lr": NUMBER, "divergence": NUMBER_OR_NONE}
_OPTIONAL = {
    **dict.fromkeys(("divergence_before", "inconsistency", "nsr", "grad_norm", "strikes", "period"), NUMBER_OR_NONE),
    "seconds": (dict, type(None)),
    "decision": (dict, type(None)),
}
_DECISION = {"period": NUMBER, "period_before": NUMBER, "sigma": NUMBER_OR_NONE}
_INJECTION = {"step": (int,), "rank": (int,), "site": TEXT, "landed": (bool,)}
_VALUES = ("value_before", "value_after", "norm", "elements")


def checked_steps(record: TrialRecord) -> Iterator[dict[str, Any]]:
    """Rows of steps.jsonl."""
    for number, row in enumerate(record.steps(), start=1):
        where = f"{record.path / STEPS}, line {number}"
        require(row, _STEP, where)
        require_each(row["loss"], NUMBER, f"{where}: loss")
        if not row["loss"]:
            raise ValueError(f"{where}: loss must hold a number per rank, got none")
        require(row, {key: kinds for key, kinds in _OPTIONAL.items() if key in row}, where)
        if row.get("seconds"):
            require_each(row["seconds"], NUMBER, f"{where}: seconds")
        if row.get("decision"):
            require(row["decision"], _DECISION, f"{where}: decision")
        yield row


def checked_injections(record: TrialRecord) -> Iterator[dict[str, Any]]:
    """Rows of injections.jsonl."""
    for number, row in enumerate(record.injections(), start=1):
        where = f"{record.path / INJECTIONS}, line {number}"
        require(row, _INJECTION, where)
        require(row, dict.fromkeys((key for key in _VALUES if key in row), NUMBER_OR_NONE), where)
        yield row
