"""What a result says of its steps."""

from dataclasses import replace
from itertools import permutations
from math import isnan, nan

from paftbench.records.result import Course, Divergence
from paftbench.records.step import StepRow
from paftbench.training.summary import _course, _divergence

A_STEP = StepRow(step=0, loss=(0.0,), lr=1.0, divergence=None)


def test_a_step_that_is_not_a_number_is_the_largest_wherever_it_stands() -> None:
    for values in permutations([nan, 1.0, 2.0, 4.0, None]):
        found = _course(values)
        assert found.median == 3.0 and found.max is not None and isnan(found.max)
        largest = _divergence([replace(A_STEP, divergence=value) for value in values], 1.0).max
        assert largest is not None and isnan(largest)


def test_median_and_maximum_of_what_was_measured() -> None:
    assert _course([3.0, None, 1.0, 2.0]) == Course(median=2.0, max=3.0)
    assert _course([None]) == Course(median=None, max=None)
    before = [replace(A_STEP, divergence_before=value) for value in (3.0, 1.0)]
    assert _divergence(before, 0.0) == Divergence(final=0.0, max=3.0, before_sync=2.0)
