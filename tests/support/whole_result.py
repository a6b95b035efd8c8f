"""The least that a `result.json` holds, for tests to which its numbers do not matter."""

from collections.abc import Mapping
from typing import Any

VIEWS = ("mean_model", "worst_rank", "rank0")


def whole_result(planned: Mapping[str, Any], **changes: Any) -> dict[str, Any]:
    """A result of the trial that `planned` (the content of trial.json) plans: masked, every metric 1."""
    keys = ("id", "name", "experiment", "grid", "labels", "golden_id")
    return {
        "schema": 1, **{key: planned[key] for key in keys}, "outcome": "masked", "reason": None,
        "metric": {"name": "accuracy", "direction": "max", "chance": 0.1, **dict.fromkeys(VIEWS, 1.0)},
        "strikes": dict.fromkeys(("drawn", "landed", "changed"), 0), "time": {"step_max_s": 0.001, "total_s": 0.01},
        **{name: {} for name in ("history", "divergence", "inconsistency", "nsr", "mitigation", "environment")},
        "params_sha256": [], **changes,
    }  # fmt: skip
