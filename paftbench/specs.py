"""Faults and mitigations by name, for Python users; the same fields as in an experiment file."""

from typing import Any

from paftbench import mitigations
from paftbench.faults.fault import Fault, parse_fault
from paftbench.plugins import build_named


def fault(model: str, **fields: Any) -> Fault:
    """A fault: `fault("bit_flip", degree=1e-9, site="result")`."""
    return parse_fault({"model": model, **fields}, "fault")


def mitigation(name: str, **fields: Any) -> mitigations.Mitigation:
    """A mitigation: `mitigation("paft_sync", period=10)`."""
    built: mitigations.Mitigation = build_named("mitigations", {"name": name, **fields}, "mitigation")
    return built
