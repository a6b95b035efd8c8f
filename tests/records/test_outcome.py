"""Outcomes by INTERFACE §3: the first that holds."""

from dataclasses import replace

import pytest

from paftbench.records.outcome import Facts, outcome_of

ACCURACY = Facts(
    nonfinite=False, judged=0.98, golden=0.99, chance=0.1, untrained=0.12, direction="max",
    tolerance=0.02,
)  # fmt: skip
LOSS = replace(ACCURACY, judged=2.26, golden=2.25, chance=5.5, untrained=5.6, direction="min")


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        (ACCURACY, "masked"),
        (replace(ACCURACY, judged=0.96), "degraded"),
        (replace(ACCURACY, judged=0.96, golden=None), "masked"),
        (replace(ACCURACY, judged=0.1), "failed_to_learn"),
        (replace(ACCURACY, judged=0.11), "failed_to_learn"),
        (replace(ACCURACY, judged=0.1, nonfinite=True), "nonfinite"),
        (replace(ACCURACY, judged=float("nan")), "nonfinite"),
        (LOSS, "masked"),
        (replace(LOSS, judged=2.28), "degraded"),
        (replace(LOSS, judged=5.55), "failed_to_learn"),
        (replace(LOSS, judged=2.0), "masked"),
    ],
)
def test_the_first_outcome_that_holds_is_given(facts: Facts, expected: str) -> None:
    assert outcome_of(facts) == expected
