"""What a result says of its steps."""

from itertools import permutations
from math import isnan, nan
from typing import Any

from paftbench.training.summary import _divergence, _middle_and_top


def steps(key: str, values: Any) -> list[dict[str, Any]]:
    return [{"divergence": None, "divergence_before": None, key: value} for value in values]


def test_a_step_that_is_not_a_number_is_the_largest_wherever_it_stands() -> None:
    for values in permutations([nan, 1.0, 2.0, 4.0, None]):
        found = _middle_and_top(steps("nsr", values), "nsr")
        assert found["median"] == 3.0 and found["max"] is not None and isnan(found["max"])
        largest = _divergence(steps("divergence", values), 1.0)["max"]
        assert largest is not None and isnan(largest)


def test_median_and_maximum_of_what_was_measured() -> None:
    assert _middle_and_top(steps("nsr", [3.0, None, 1.0, 2.0]), "nsr") == {"median": 2.0, "max": 3.0}
    assert _middle_and_top(steps("nsr", [None]), "nsr") == {"median": None, "max": None}
    assert _divergence(steps("divergence_before", [3.0, 1.0]), 0.0) == {"final": 0.0, "max": 3.0, "before_sync": 2.0}
