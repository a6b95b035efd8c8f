"""What a test may claim of a run, on runs that nobody trained."""

import math
from collections.abc import Sequence
from typing import Any

import pytest
import torch

import paftbench
from paftbench.faults.injector import Strikes
from paftbench.testing import Training, Trainings
from paftbench.testing.curve import curve_of, default_window, mean_curve, tail_mean
from paftbench.testing.rank import Outcome, Task
from paftbench.testing.replicas import largest_difference, root_mean_square

FLIPS = (paftbench.Fault("bit_flip", degree=1e-3),)
FALLING = [2.0, 1.0, 0.5, 0.4, 0.3, 0.2, 0.1, 0.1, 0.1, 0.1]


def run_of(
    curves: Sequence[Sequence[float]],
    *,
    faults: Any = FLIPS,
    changed: int = 3,
    seed: int = 0,
    weights: Sequence[float] | None = None,
    **options: Any,
) -> Training:
    """A run with these curves; `weights` is each rank's only parameter."""
    task = Task(
        train=list,
        build=list,
        faults=faults,
        mitigations=options.pop("mitigations", ()),
        seed=seed,
        fault_seed=seed,
        accumulation=1,
        exact=False,
        ddp={},
    )
    outcomes = [
        Outcome(
            curve=list(curve),
            strikes=Strikes(drawn=changed, landed=changed, changed=changed),
            parameters={"bias": torch.zeros(2), "weight": torch.tensor([1.0, (weights or [0.0] * 9)[rank]])},
            steps=10,
            syncs=1,
            synced_last=False,
            extra_bytes=8,
        )
        for rank, curve in enumerate(curves)
    ]
    return Training(
        task=task, outcomes=outcomes, ranks_as="threads", allow_no_strike=options.pop("allow_no_strike", False)
    )


def golden_of(curves: Sequence[Sequence[float]], **options: Any) -> Training:
    return run_of(curves, faults=(), changed=0, **options)


def ending(value: float, points: int = 10) -> list[float]:
    """The falling curve with another end."""
    return [*FALLING[: points - 2], value, value]


GOLDEN = golden_of([FALLING, FALLING])


def test_run_within_the_margin_passes() -> None:
    run_of([ending(0.14), ending(0.12)]).assert_converges_like(GOLDEN, margin=0.05)
    run_of([ending(0.0), ending(0.0)]).assert_converges_like(GOLDEN, margin=0.0)


def test_worse_mean_fails_with_the_numbers() -> None:
    with pytest.raises(AssertionError) as caught:
        run_of([ending(0.4), ending(0.2)]).assert_converges_like(GOLDEN, margin=0.05)
    told = str(caught.value)
    assert told.startswith("the run does not converge like the golden run: mean of ranks is 0.2 worse, margin 0.05")
    rows = [line.split() for line in told.splitlines()]
    assert ["mean", "of", "ranks", "0.1", "0.3", "+0.2", "FAIL"] in rows
    assert ["rank", "0", "(worst)", "0.1", "0.4", "+0.3", "FAIL"] in rows
    assert ["9", "0.1", "0.3", "0.4"] in rows and ["2", "0.5", "0.5", "0.5"] in rows
    assert "strikes: 6 drawn, 6 landed (by rank: 3, 3), 6 changed bits" in told


def test_one_bad_rank_fails_though_the_mean_is_fine() -> None:
    good = [ending(0.0)] * 5
    with pytest.raises(AssertionError, match=r"rank 3 \(worst\) is 0.3 worse, margin 0.05"):
        run_of([*good[:3], ending(0.4), *good[:2]]).assert_converges_like(golden_of([FALLING] * 6), margin=0.05)


def test_higher_may_be_better() -> None:
    rising = golden_of([[0.1, 0.5, 0.9, 0.9, 0.9]] * 2)
    run_of([[0.1, 0.5, 0.9, 0.9, 0.95]] * 2).assert_converges_like(rising, margin=0.02, higher_is_better=True)
    with pytest.raises(AssertionError, match=r"mean of ranks is 0.1 worse"):
        run_of([[0.1, 0.5, 0.9, 0.9, 0.8]] * 2).assert_converges_like(rising, margin=0.02, higher_is_better=True)


def test_window_decides_what_is_judged() -> None:
    late = run_of([[*FALLING[:-1], 0.5]] * 2)
    with pytest.raises(AssertionError, match=r"mean of ranks is 0.4 worse"):
        late.assert_converges_like(GOLDEN, margin=0.15, window=1)
    late.assert_converges_like(GOLDEN, margin=0.15, window=4)
    assert [default_window(points) for points in (1, 4, 9, 10, 400)] == [1, 1, 1, 2, 80]


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_curve_that_is_not_finite_never_passes(bad: float) -> None:
    for higher in (False, True):
        with pytest.raises(AssertionError, match=f"rank 1's curve is {bad} at point 9"):
            run_of([FALLING, [*FALLING[:-1], bad]]).assert_converges_like(
                GOLDEN, margin=1e9, higher_is_better=higher, allow_flat_golden=True
            )
    with pytest.raises(AssertionError, match=f"golden run is no standard: rank 0's curve is {bad} at point 9"):
        run_of([FALLING] * 2).assert_converges_like(golden_of([[*FALLING[:-1], bad], FALLING]), margin=0.1)


def test_spike_before_the_judged_points_is_neither_blamed_nor_held_against_a_run() -> None:
    spiked = [FALLING[0], math.inf, *FALLING[2:]]
    run_of([FALLING, spiked]).assert_converges_like(GOLDEN, margin=0.1)
    with pytest.raises(AssertionError, match=r"mean of ranks is 0.5 worse"):
        run_of([[*spiked[:-2], 0.6, 0.6]] * 2).assert_converges_like(GOLDEN, margin=0.1)


def test_golden_run_that_learned_nothing_proves_nothing() -> None:
    flat = golden_of([[1.0] * 10] * 2)
    run = run_of([[1.0] * 10] * 2)
    with pytest.raises(
        AssertionError, match=r"the golden run proves nothing: .* it improved by 0, no more than margin"
    ):
        run.assert_converges_like(flat, margin=0.05)
    run.assert_converges_like(flat, margin=0.05, allow_flat_golden=True)
    run_of([[0.5]] * 2).assert_converges_like(golden_of([[0.5]] * 2), margin=0.05)


@pytest.mark.parametrize("margin", [-0.1, math.nan, math.inf, True, "5%", None])
def test_margin_that_means_nothing_is_refused(margin: Any) -> None:
    with pytest.raises(ValueError, match=r"margin .* must be >= 0, got"):
        run_of([FALLING] * 2).assert_converges_like(GOLDEN, margin=margin)


def test_margin_cannot_be_left_out() -> None:
    with pytest.raises(TypeError, match="margin"):
        run_of([FALLING] * 2).assert_converges_like(GOLDEN)  # type: ignore[call-arg]


@pytest.mark.parametrize("window", [0, 11, -1, True])
def test_window_outside_the_curve_is_refused(window: int) -> None:
    with pytest.raises(ValueError, match=r"window .* from 1 to the curve's 10, got"):
        run_of([FALLING] * 2).assert_converges_like(GOLDEN, margin=0.1, window=window)


def test_curves_of_different_length_are_not_compared() -> None:
    with pytest.raises(AssertionError, match="golden run's curve has 10 points and this run's 9"):
        run_of([FALLING[:9]] * 2).assert_converges_like(GOLDEN, margin=0.1)


def test_only_a_golden_run_of_the_same_ranks_and_seed_is_a_standard() -> None:
    run = run_of([FALLING] * 2)
    with pytest.raises(ValueError, match="golden is no golden run"):
        run.assert_converges_like(run, margin=0.1)
    with pytest.raises(ValueError, match="same ranks, got 2 and 3"):
        run.assert_converges_like(golden_of([FALLING] * 3), margin=0.1)
    with pytest.raises(ValueError, match="same seed, got 0 and 1"):
        run.assert_converges_like(golden_of([FALLING] * 2, seed=1), margin=0.1)
    with pytest.raises(ValueError, match="neither faults nor mitigations"):
        GOLDEN.assert_converges_like(GOLDEN, margin=0.1)


def test_run_without_a_strike_proves_nothing_unless_allowed() -> None:
    never = run_of([FALLING] * 2, changed=0)
    for claim in (lambda run: run.assert_converges_like(GOLDEN, margin=0.1), lambda run: run.assert_replicas_agree()):
        with pytest.raises(AssertionError, match="no strike changed a bit: this run proves nothing"):
            claim(never)
        claim(run_of([FALLING] * 2, changed=0, allow_no_strike=True))
        mitigated = (paftbench.Mitigation("paft_sync", period=5),)
        claim(run_of([FALLING] * 2, faults=(), changed=0, mitigations=mitigated))


def test_struck_counts_all_ranks() -> None:
    run = run_of([FALLING] * 2)
    run.assert_struck()
    run.assert_struck(at_least=6, changed=6)
    with pytest.raises(AssertionError, match="6 strikes landed and 6 changed bits, but at least 7 and 1 were to"):
        run.assert_struck(at_least=7)
    with pytest.raises(AssertionError, match="at least 1 and 7 were to"):
        run.assert_struck(changed=7)
    with pytest.raises(ValueError, match="at_least"):
        run.assert_struck(at_least=0)
    assert (run.strikes.landed, [each.landed for each in run.strikes_by_rank]) == (6, [3, 3])


def test_disagreeing_replicas_are_named() -> None:
    apart = run_of([FALLING] * 3, weights=[0.5, 0.25, 0.75])
    with pytest.raises(AssertionError) as caught:
        apart.assert_replicas_agree()
    assert str(caught.value).startswith(
        "replicas disagree: parameter 'weight' differs by 0.5 between ranks 1 and 2 (1 of 2 parameters differ) > "
        "tolerance=0\n"
    )
    assert "the last step did not end with a synchronisation" in str(caught.value)
    apart.assert_replicas_agree(tolerance=0.5)
    assert apart.divergence == pytest.approx(math.sqrt((0.0 + 0.25**2 + 0.25**2) / 3))
    for tolerance in (-1.0, math.nan):
        with pytest.raises(ValueError, match="tolerance"):
            apart.assert_replicas_agree(tolerance=tolerance)


def test_what_is_not_finite_agrees_only_with_itself() -> None:
    same = run_of([FALLING] * 2, weights=[math.nan, math.nan])
    same.assert_replicas_agree()
    for odd in (1.0, math.inf):
        replicas = [{"w": torch.tensor([0.0, value])} for value in (odd, odd, math.nan)]
        assert (largest_difference(replicas).size, largest_difference(replicas).ranks) == (math.inf, (0, 2))
    infinite = [{"w": torch.tensor([math.inf])}] * 2
    assert largest_difference(infinite).size == 0.0 and root_mean_square(infinite) == 0.0


def test_run_describes_itself_in_the_words_of_its_plugins() -> None:
    window = {"kind": "window", "start": 3, "stop": 9}
    fault = paftbench.Fault("bit_flip", name="late", degree=0.5, ranks=[1], schedule=window)
    clip = paftbench.Mitigation("clip_value", limit=0.5)
    told = run_of([FALLING] * 2, faults=(fault,), mitigations=(clip,)).describe()
    assert "faults: bit_flip(degree=0.5, unit=per_element, bits=any, site=result, ranks=[1], schedule=" in told
    assert ") named 'late'\n  mitigations: clip_value(limit=0.5)\n" in told


def test_sample_names_the_seeds_that_fail() -> None:
    pairs = [(golden_of([FALLING] * 2, seed=s), run_of([ending(0.1 + s)] * 2, seed=s)) for s in range(3)]
    sample = Trainings(pairs)
    sample.assert_struck(at_least=6)
    sample.assert_replicas_agree()
    with pytest.raises(AssertionError) as caught:
        sample.assert_converges_like_golden(margin=0.5)
    told = str(caught.value)
    assert told.startswith("2 of 3 seeds fail\nseed 1: the run does not converge") and "seed 2: " in told
    assert "seed 0: " not in told


def test_curve_is_what_can_be_read_as_numbers() -> None:
    assert curve_of([1, torch.tensor(2.0, requires_grad=True), 3.0]) == [1.0, 2.0, 3.0]
    assert curve_of(torch.tensor([1.0, 2.0])) == curve_of(iter((1, 2))) == [1.0, 2.0]
    assert curve_of(0.5) == curve_of(torch.tensor(0.5)) == [0.5]
    for nothing, reason in (
        (None, "train returned None; return its curve"),
        ([], "curve is empty"),
        ({"loss": 1.0}, "train returned a dict"),
        ("0.1", "train returned a str"),
        ([1.0, "much"], "point 1 of train's curve is no number: 'much'"),
        ([[1.0, 2.0]], r"point 0 of train's curve is no number"),
    ):
        with pytest.raises(ValueError, match=reason):
            curve_of(nothing)


def test_mean_over_ranks_is_not_finite_where_a_rank_is_not() -> None:
    assert mean_curve([[1.0, 2.0], [3.0, 6.0]]) == [2.0, 4.0]
    assert math.isnan(mean_curve([[math.inf], [1.0]])[0]) and math.isnan(tail_mean([1.0, math.inf], 1))
