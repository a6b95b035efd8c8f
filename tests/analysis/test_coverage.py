"""What docs/reading.md says of intervals is what simulation gives."""

import importlib.util
import re
import sys
from collections.abc import Iterator
from types import ModuleType

import numpy as np
import pytest
from support.checkout import ROOT

from paftbench.analysis.stats import t_interval

PAGE = (ROOT / "docs" / "reading.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def script() -> Iterator[ModuleType]:
    spec = importlib.util.spec_from_file_location("coverage_of_intervals", ROOT / "tools" / "coverage.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


def rows_of(text: str) -> dict[str, list[int]]:
    found = re.findall(r"^\| ((?:paired t|percentile bootstrap) \| \d+) \| (\d+) \| (\d+) \| (\d+) \|$", text, re.M)
    return {name: [int(value) for value in values] for name, *values in found}


def test_the_page_quotes_the_coverage_that_the_script_prints(script: ModuleType) -> None:
    quoted, printed = rows_of(PAGE), rows_of(script.table())
    assert len(quoted) == 4 and quoted.keys() == printed.keys()
    for name, values in quoted.items():
        assert values == pytest.approx(printed[name], abs=1), name  # a point: numpy may change its streams


def test_the_script_judges_the_interval_that_results_are_given(script: ModuleType) -> None:
    values = np.random.default_rng(1).standard_normal((3, 5))
    for own, low, high in zip(values, *script.t_bounds(values), strict=True):
        assert t_interval(list(own)) == pytest.approx((low, high))


def test_a_difference_of_the_detectable_size_is_found_four_times_in_five(script: ModuleType) -> None:
    for seeds in script.SIZES:
        assert script.power(seeds) == pytest.approx(0.8, abs=0.015)
