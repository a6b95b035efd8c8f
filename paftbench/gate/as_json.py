"""The findings as JSON, for other tools; docs/check.md has the schema."""

from dataclasses import asdict
from typing import Any, Final

from paftbench.gate.finding import Finding, Gate, counts_of

SCHEMA: Final = 1


def content(gate: Gate) -> dict[str, Any]:
    """What the file holds; NaN and infinities are written as in the records."""
    return {
        "schema": SCHEMA,
        "experiment": gate.experiment,
        "verdict": gate.verdict,
        "exit": gate.exit_code,
        "counts": counts_of(gate.findings),
        "mode": gate.mode,
        "baseline": gate.baseline,
        "command": gate.command,
        "trials": gate.trials,
        "environment": dict(gate.environment),
        "findings": [_row(finding) for finding in gate.findings],
    }


def _row(finding: Finding) -> dict[str, Any]:
    return {key: value for key, value in asdict(finding).items() if key != "is_error"}
