"""Cells, gaps, rates and claims; on directories written without training."""

from math import isnan, nan
from pathlib import Path
from typing import Any

import pytest
from support.synthetic_results import FAULT, FLIPS, MITIGATIONS, RESNET, cell, golden, identity, spec, write_trial

from paftbench.analysis.stats import claim_of, detectable, summarise, t_interval, wilson
from paftbench.analysis.table import json_rows as rows
from paftbench.analysis.table import render


def row_of(directory: Path, mitigation: str) -> dict[str, Any]:
    return next(row for row in rows(directory) if row["labels"].get("mitigation") == mitigation)


def test_gap_closed_is_the_share_of_the_way_from_ddp_to_golden_of_the_same_seed(tmp_path: Path) -> None:
    golden(tmp_path, [1.0, 0.99, 0.98])
    cell(tmp_path, "ddp", [0.5, 0.49, 0.78])
    cell(tmp_path, "paft_sync", [0.9, 0.74, 0.98])
    row = row_of(tmp_path, "paft_sync")
    assert row["points"]["gap_closed"] == pytest.approx([0.8, 0.5, 1.0])
    assert row["gap_closed"] == pytest.approx((0.8 + 0.5 + 1.0) / 3)
    assert row["ranges"]["gap_closed"]["worst_rank"] == pytest.approx([0.5, 1.0])
    assert row_of(tmp_path, "ddp")["gap_closed"] == 0.0
    assert "-0%" not in render(tmp_path)
    assert row_of(tmp_path, "golden")["gap_closed"] is None


def test_gap_closed_has_the_same_sign_for_a_loss(tmp_path: Path) -> None:
    golden(tmp_path, [2.0], metric_name="val_loss")
    cell(tmp_path, "ddp", [3.0], metric_name="val_loss")
    cell(tmp_path, "paft_sync", [2.25], metric_name="val_loss")
    assert row_of(tmp_path, "paft_sync")["gap_closed"] == pytest.approx(0.75)


def test_the_judge_decides_which_gap_the_table_shows(tmp_path: Path) -> None:
    golden(tmp_path, [(1.0, 1.0, 1.0)], judge="rank0")
    cell(tmp_path, "ddp", [(0.9, 0.5, 0.6)], judge="rank0")
    cell(tmp_path, "paft_sync", [(1.0, 0.75, 0.7)], judge="rank0")
    row = row_of(tmp_path, "paft_sync")
    assert row["gap_closed"] == pytest.approx(0.25)
    assert row["gap_closed_by_view"] == pytest.approx({"mean_model": 1.0, "worst_rank": 0.5, "rank0": 0.25})


def test_no_gap_within_the_tolerance_or_goldens_range(tmp_path: Path) -> None:
    golden(tmp_path, [0.99, 0.93, 0.96])
    cell(tmp_path, "ddp", [0.94, 0.95, 0.80])
    cell(tmp_path, "paft_sync", [0.98, 0.95, 0.92])
    row = row_of(tmp_path, "paft_sync")
    assert row["points"]["gap_closed"] == pytest.approx([0.75])
    assert "75% (1/3)" in render(tmp_path)


def test_no_gap_anywhere_is_said_in_words(tmp_path: Path) -> None:
    golden(tmp_path, [0.99])
    cell(tmp_path, "ddp", [0.98])
    cell(tmp_path, "paft_sync", [0.985])
    assert row_of(tmp_path, "paft_sync")["gap_closed"] == "no gap"
    assert "no gap" in render(tmp_path)


def test_nothing_is_compared_without_golden_or_ddp(tmp_path: Path) -> None:
    cell(tmp_path, "paft_sync", [0.9])
    row = row_of(tmp_path, "paft_sync")
    assert row["gap_closed"] is None and row["overhead"] is None


def test_ddp_is_found_by_labels_where_the_mitigation_label_sets_more(tmp_path: Path) -> None:
    golden(tmp_path, [1.0])
    cell(tmp_path, "ddp", [0.5])
    own = spec(RESNET, steps=10, seed=0, faults=[FAULT], mitigations=MITIGATIONS["paft_sync"], exact=False)
    own["optimizer"]["lr"] = 0.05
    id = identity(spec(RESNET, steps=10, seed=0, faults=[], mitigations=[]))
    write_trial(tmp_path, own, grid="noise", labels={"mitigation": "slow"}, golden_id=id, metric=(0.75,) * 3, drawn=1)
    assert row_of(tmp_path, "slow")["gap_closed"] == pytest.approx(0.5)


def test_no_strike_is_shown_and_never_counted_in_a_rate(tmp_path: Path) -> None:
    for seed, (drawn, outcome) in enumerate([(0, "masked"), (3, "masked"), (4, "degraded"), (9, "degraded")]):
        trial = spec(RESNET, steps=10, seed=seed, faults=[{**FLIPS, "degree": 1e-6}], mitigations=[])
        write_trial(tmp_path, trial, grid="flips", labels={"mitigation": "ddp"}, drawn=drawn, outcome=outcome)
    row = rows(tmp_path)[0]
    assert row["outcomes"] == {"degraded": 2, "no strike": 1, "masked": 1}
    assert row["rates"]["masked"]["of"] == 3 and row["rates"]["degraded"]["hits"] == 2
    assert "no strike 1" in render(tmp_path)


def test_a_run_that_hung_before_any_strike_is_shown_as_hung_and_in_no_rate(tmp_path: Path) -> None:
    cell(tmp_path, "ddp", [None], outcome="hung", drawn=0)
    row = row_of(tmp_path, "ddp")
    assert row["outcomes"] == {"hung": 1} and row["rates"] == {}


def test_a_run_without_faults_is_not_a_missing_strike(tmp_path: Path) -> None:
    golden(tmp_path, [0.9])
    assert rows(tmp_path)[0]["outcomes"] == {"masked": 1}


def test_an_error_or_an_unfinished_run_is_in_no_rate(tmp_path: Path) -> None:
    cell(tmp_path, "ddp", [0.9], outcome="error")
    cell(tmp_path / "x", "ddp", [0.9])
    (row,) = rows(tmp_path)
    assert row["rates"] == {}
    cell(tmp_path, "paft_sync", [0.9, 0.9], outcome=None)
    assert row_of(tmp_path, "paft_sync")["outcomes"] == {"missing": 2}
    assert row_of(tmp_path, "paft_sync")["worst_rank"] is None


def test_a_crash_has_no_numbers_but_that_it_counts_as_chance_and_the_table_still_stands(tmp_path: Path) -> None:
    golden(tmp_path, [0.99])
    nothing: dict[str, Any] = {
        "divergence": {}, "nsr": {}, "strikes": {}, "mitigation": {}, "time": {}, "history": {}, "parameters": None,
    }  # fmt: skip
    cell(tmp_path, "ddp", [None], outcome="crashed", **nothing)
    row = row_of(tmp_path, "ddp")
    assert row["outcomes"] == {"crashed": 1} and row["worst_rank"] == 0.1 and row["strikes"]["drawn"] is None
    assert "crashed" in render(tmp_path) and "0.100 1†" in render(tmp_path)


@pytest.mark.parametrize(
    ("trial", "expected"),
    [
        ({"placement": "torchrun", "procs": 4}, 1.25),
        ({"placement": "virtual"}, None),
        ({"placement": "torchrun", "procs": 4, "exact": True}, None),
    ],
)
def test_overhead_is_against_ddp_under_torchrun_and_never_exact(tmp_path: Path, trial: Any, expected: Any) -> None:
    cell(tmp_path, "ddp", [0.9], trial=trial, step_s=0.04)
    cell(tmp_path, "paft_sync", [0.9], trial=trial, step_s=0.05)
    assert row_of(tmp_path, "paft_sync")["overhead"] == expected
    assert ("1.25x" in render(tmp_path)) == (expected is not None)


def test_overhead_is_missing_where_time_was_not_measured(tmp_path: Path) -> None:
    torchrun = {"placement": "torchrun", "procs": 4}
    cell(tmp_path, "ddp", [0.9], trial=torchrun, step_s=None)
    cell(tmp_path, "paft_sync", [0.9], trial=torchrun, step_s=0.05)
    assert row_of(tmp_path, "paft_sync")["overhead"] is None


def test_seeds_decide_what_is_claimed(tmp_path: Path) -> None:
    assert [claim_of(n) for n in (1, 2, 3, 4, 5, 9)] == ["none", "none", "range", "range", "interval", "interval"]
    cell(tmp_path, "ddp", [0.9, 0.8])
    assert rows(tmp_path)[0]["ranges"]["worst_rank"] is None
    assert "shown, no claim" in render(tmp_path)
    cell(tmp_path, "paft_sync", [0.9, 0.8, 0.7, 0.95])
    row = row_of(tmp_path, "paft_sync")
    assert row["ranges"]["worst_rank"] == [0.7, 0.95] and row["points"]["worst_rank"] == (0.9, 0.8, 0.7, 0.95)


def test_five_seeds_get_students_interval() -> None:
    """The sleep data of Student 1908, extra hours of one drug over the other: 1.58, 95 % 0.70 to 2.46."""
    gained = [1.2, 2.4, 1.3, 1.3, 0.0, 1.0, 1.8, 0.8, 4.6, 1.4]
    assert t_interval(gained) == pytest.approx((0.7001, 2.4599), abs=1e-4)
    found = summarise(range(5), gained[:5])
    assert found.claim == "interval" and (found.low, found.high) == t_interval(gained[:5])


def test_equal_seeds_have_an_interval_without_width_at_their_value() -> None:
    assert t_interval([0.1] * 5) == (0.1, 0.1)
    assert t_interval([0.98 - 0.96] * 5) == (0.98 - 0.96,) * 2


def test_runs_of_a_seed_count_once_as_their_mean() -> None:
    found = summarise([0, 0, 1, 1, 2, 2, 3, 3, 4, 4], [0.0, 1.0] * 5)
    assert (found.low, found.mean, found.high) == (0.5, 0.5, 0.5)
    uneven = summarise([0, 0, 0, 1, 2, 3, 4], [1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0])
    assert uneven.mean == 0.2 and uneven.low is not None and uneven.high is not None
    assert uneven.low + uneven.high == pytest.approx(0.4)


def test_a_value_that_is_not_a_number_leaves_no_mean_and_no_spread_of_the_others() -> None:
    found = summarise(range(6), [0.9, 0.9, 0.9, 0.9, 0.9, nan])
    assert found.mean is not None and isnan(found.mean) and found.low is found.high is None


def test_numbers_near_the_largest_float_have_an_interval_too() -> None:
    low, high = t_interval([1e308, -1e308, 1e308, 0.0, 0.0])
    assert low < 0 < high


def test_a_detectable_effect_is_found_four_times_in_five() -> None:
    """Cohen's d of .8 power: 1.682 standard deviations with 5 pairs, .9960 with 10 (any table of the paired t test)."""
    for pairs, effect in ((5, 1.6820), (10, 0.9960)):
        values = [(-1.0) ** i for i in range(pairs)]
        spread = (sum((v - sum(values) / pairs) ** 2 for v in values) / (pairs - 1)) ** 0.5
        assert detectable(values) == pytest.approx(effect * spread, abs=2e-3)
    assert detectable([0.2] * 5) == 0.0 and detectable([0.1, 0.2]) is None


def test_wilson_matches_published_values() -> None:
    assert wilson(0, 10) == pytest.approx((0.0, 0.2775), abs=1e-4)
    assert wilson(15, 50) == pytest.approx((0.1910, 0.4375), abs=1e-4)
    assert wilson(0, 0) == (0.0, 1.0)
    with pytest.raises(ValueError, match="hits"):
        wilson(3, 2)
