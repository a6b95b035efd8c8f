"""Committed runs made again: the same bits on the machine they come from, elsewhere within what was measured.

`tools/processor_study.py` measured how far rows of each kind move when libraries compute as on other processors.
"""

import importlib.util
from functools import cache
from types import ModuleType
from typing import Any

from paftbench.store.files import read_json
from support.checkout import ROOT

RESULTS = ROOT / "results"
MEASURED = RESULTS / "reference" / "processors" / "study.json"
MARGIN = 2  # the largest of some rows is not the largest of all
# The drift that a flip leaves is of the few elements struck, and on ResNet rounding moves such a value by as much as
# itself within some hundred steps: by .97 of the divergence where one row was measured at .27.
OF_FEW_ELEMENTS = frozenset({"bit_flip, accuracy"})
LEAST = {"metric": 0.003, "divergence": 1e-3, "nsr": 1e-3}  # an image of 360, a rounding: none may have been measured


@cache
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("processor_study", RESULTS.parent / "tools" / "processor_study.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def allowed(kind: str) -> dict[str, float]:
    """By how much a run of a kind may differ on another machine: of the metric, of the divergence, of the NSR."""
    measured: dict[str, dict[str, float]] = read_json(MEASURED)["tolerances"]
    assert kind in measured, f"no row of the kind {kind!r} is among those of tools/processor_study.py"
    healthy = measured[f"no fault, {kind.rpartition(', ')[2]}"]  # no fault makes a training hang less on rounding
    return {value: max(MARGIN * max(own, healthy[value]), LEAST[value]) for value, own in measured[kind].items()}


def assert_within(trial: dict[str, Any], then: dict[str, Any], now: dict[str, Any]) -> None:
    """Two results of one trial on different machines: strikes are drawn alike, numbers move no more than allowed."""
    assert now["strikes"]["drawn"] == then["strikes"]["drawn"]
    kind = script().kind_of(trial, then)
    if kind.startswith("wild"):
        return  # rounding decides what is left of it; the study's table shows by how much
    most = allowed(kind)
    held = ("metric",) if kind in OF_FEW_ELEMENTS else tuple(most)
    for value, by in script().moved(then, now).items():
        if value not in held:
            continue
        assert by <= most[value], f"{value} moved by {by}, allowed {most[value]}"
