"""The study of processors counts what it says: differences in their units, kinds apart, draws that may never differ."""

import copy
from typing import Any

import pytest
from support.reruns import script

KEY = ("quickstart", "noise/ddp/faults.noise.degree=0.03/s1")


def result(**changed: Any) -> dict[str, Any]:
    """A result with its metric, divergence, NSR, outcome and strikes; `divergence=2.0` changes its largest."""
    found: dict[str, Any] = {
        "metric": {"name": "accuracy", "mean_model": 0.98, "worst_rank": 0.95, "rank0": 0.97},
        "divergence": {"final": 1.0, "max": 4.0, "before_sync": None}, "nsr": {"median": 0.5, "max": 2.0},
        "outcome": "masked", "strikes": {"drawn": 10, "landed": 10, "changed": 10}, "mitigation": {"periods": []},
        "environment": {"bits": {"normal": "x"}},
    }  # fmt: skip
    for path, value in changed.items():
        part, _, key = path.partition("__")
        if key:
            found[part][key] = value
        else:
            found[part] = value
    return copy.deepcopy(found)


def test_a_metric_moves_in_its_unit_by_its_worst_view_and_the_rest_as_a_share_of_the_larger() -> None:
    moved = script().moved(result(), result(metric__rank0=0.96, divergence__final=2.0, nsr__max=2.5))
    assert moved == pytest.approx({"metric": 0.01, "divergence": 0.5, "nsr": 0.2})
    assert script().moved(result(), result()) == {"metric": 0.0, "divergence": 0.0, "nsr": 0.0}
    still = result(divergence__final=float("nan"), divergence__max=float("inf"), nsr__max=None)
    assert script().moved(still, still) == {"metric": 0.0, "divergence": 0.0, "nsr": 0.0}
    assert script().moved(result(), still)["divergence"] == script().moved(result(), still)["nsr"] == float("inf")


@pytest.mark.parametrize(
    ("models", "changed", "kind"),
    [
        ([], {}, "no fault, accuracy"),
        (["gaussian_noise", "bit_flip"], {}, "gaussian_noise+bit_flip, accuracy"),
        (["gaussian_noise"], {"mitigation__periods": [10, 10]}, "gaussian_noise, accuracy"),
        (["gaussian_noise"], {"mitigation__periods": [10, 2]}, "periods chosen, accuracy"),
        (["bit_flip"], {"divergence__max": 1e34}, "wild, accuracy"),
        (["bit_flip"], {"divergence__max": float("nan"), "mitigation__periods": [10, 2]}, "wild, accuracy"),
        (["bit_flip"], {"outcome": "nonfinite"}, "wild, accuracy"),
    ],
)
def test_rows_are_of_one_kind_where_rounding_counts_alike(models: list[str], changed: Any, kind: str) -> None:
    assert script().kind_of({"faults": [{"model": model} for model in models]}, result(**changed)) == kind


def test_the_largest_difference_of_a_kind_is_its_tolerance_and_a_draw_that_differs_stops_the_study() -> None:
    base, settings = script().BASE, list(script().SETTINGS)[1:]
    found = {setting: {KEY: result()} for setting in script().SETTINGS}
    found[settings[0]] = {KEY: result(metric__rank0=0.96, outcome="degraded")}
    found[settings[1]] = {KEY: result(divergence__max=5.0)}
    study = script().study(found)
    assert study["tolerances"]["gaussian_noise, accuracy"] == pytest.approx(
        {"metric": 0.01, "divergence": 0.2, "nsr": 0}
    )
    (row,) = study["rows"]
    assert row["outcomes"] == ["degraded"] and set(row["moved"]) == set(settings)
    text = script().table(study)
    assert "0.010" in text and settings[0] in text and "degraded" in text and base in text
    found[settings[2]] = {KEY: result(strikes__drawn=11)}
    with pytest.raises(ValueError, match=f"under {settings[2]}: 11 strikes drawn, 10 as it is"):
        script().study(found)
