"""The gate's rule, values and forms, on directories written without training."""

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from math import nan
from pathlib import Path
from typing import Any

import pytest
from support.synthetic_results import FAULT, GPT2, MITIGATIONS, RESNET, cell, golden, identity, spec, write_trial

from paftbench.analysis.runs import Run, Sweep
from paftbench.experiment import load, plan
from paftbench.gate import Finding, judged, sweep_of, verdict_of
from paftbench.gate.rule import Bound, SeedValues, judge, resolvable, seeds_to_tell
from paftbench.gate.selecting import select
from paftbench.gate.trajectory import tail_of
from paftbench.gate.values import READERS
from paftbench.records.expectation import MEASURES, OUTCOME, Expectation
from paftbench.records.plan import VIEWS
from paftbench.records.result import History, unmeasured
from paftbench.store.directory import TrialRecord, read_results

UNTRAINED = {"step": [0], "mean_model": [0.1], "worst_rank": [0.1], "rank0": [0.1]}


def sweep_in(directory: Path) -> Sweep:
    """The trials of a directory as `check` sees them."""
    records = read_results(directory)
    results = {record.id: record.result for record in records if record.result is not None}
    return sweep_of(directory, [record.planned for record in records], results)


def found(directory: Path, *expected: Expectation) -> list[Finding]:
    sweep = sweep_in(directory)
    return judged(sweep, select(expected, sweep, "made_up"), None, "bound", 0.02)


def expects(value: str, where: Any = None, **bound: Any) -> Expectation:
    return Expectation(where=where or {"mitigation": "paft_sync"}, value=value, **bound)


def sample(*values: float, **more: Any) -> SeedValues:
    return SeedValues(seeds=tuple(range(len(values))), values=values, **more)


@pytest.mark.parametrize(
    ("values", "bound", "verdict", "says"),
    [
        ((0.9, 0.8, 0.85), Bound(at_least=0.66), "pass", ""),
        ((0.9, 0.6, 0.85), Bound(at_least=0.66), "inconclusive", "range of 3 seeds 0.600..0.900 reaches beyond"),
        ((0.5, 0.6, 0.7), Bound(at_least=0.66), "fail", "the mean 0.600 does not hold >= 0.66"),
        ((0.9, 0.8), Bound(at_least=0.66), "inconclusive", "2 seeds with a number; fewer than 3 allow no claim"),
        ((0.5, 0.6), Bound(at_least=0.66), "fail", "does not hold"),
        ((0.01, 0.02, 0.03), Bound(at_least=0.0, at_most=0.03), "pass", ""),
        ((0.01, 0.02, 0.04), Bound(at_least=0.0, at_most=0.03), "inconclusive", "a bound of 0.040 would tell"),
        ((0.71, 0.72, 0.9, 0.5, 0.7), Bound(at_least=0.66), "inconclusive", "but the interval"),
        ((0.71, 0.72, 0.73, 0.7, 0.7), Bound(at_least=0.66), "pass", ""),
    ],
)  # fmt: skip
def test_a_bound_is_held_by_the_whole_range_or_interval(
    values: Sequence[float], bound: Bound, verdict: str, says: str
) -> None:
    result = judge(sample(*values), bound)
    assert result.verdict == verdict and says in result.reason


def test_a_number_on_the_bound_holds_it_whatever_binary_fractions_make_of_it() -> None:
    lost = 0.98 - 0.96
    assert lost > 0.02
    assert judge(sample(lost, lost, lost), Bound(at_most=0.02)).verdict == "pass"
    assert judge(sample(lost, lost, lost + 1e-6), Bound(at_most=0.02)).verdict == "fail"


@pytest.mark.parametrize("bound", [0.0, 1e-6])
def test_what_is_small_beside_one_is_not_small_beside_a_small_bound(bound: float) -> None:
    one_bit = 4e-10  # the divergence of four replicas where one weight of 0.01 differs in its last bit
    assert judge(sample(*[bound + one_bit] * 3), Bound(at_most=bound)).verdict == "fail"
    assert judge(sample(*[bound - one_bit] * 3), Bound(at_least=bound)).verdict == "fail"
    assert judge(sample(*[bound * (1 + 1e-12)] * 3), Bound(at_most=bound)).verdict == "pass"


def test_a_run_that_broke_fails_and_an_unknown_one_forbids_a_pass() -> None:
    assert judge(sample(1, 1, 1, broken=("s3 crashed",)), Bound(at_least=0)).verdict == "fail"
    unknown = judge(sample(1, 1, 1, unknown=("s3 drew no strike",)), Bound(at_least=0))
    assert (unknown.verdict, unknown.reason) == ("inconclusive", "s3 drew no strike")
    assert judge(sample(1, 1, 1, unknown=("s3 drew no strike",)), Bound(at_least=2)).verdict == "fail"
    assert judge(SeedValues(), Bound(at_least=0)).verdict == "inconclusive"


def test_seeds_to_tell_are_what_a_t_interval_needs() -> None:
    assert seeds_to_tell(0.1, 0.1, 5) == 7  # 2.571 / sqrt(6) > 1 > 2.447 / sqrt(7)
    assert seeds_to_tell(0.1, 0.05, 5) == 18
    assert seeds_to_tell(0.1, 0.0, 5) is None and seeds_to_tell(0.1, 1e-6, 5) is None
    assert resolvable(0.1, 8) == pytest.approx(2.3646 * 0.1 / 2, abs=1e-5)
    assert resolvable(0.1, 3) == pytest.approx(1.96 * 0.1 * (2 / 3) ** 0.5)


def test_every_value_that_may_be_expected_can_be_read() -> None:
    assert {OUTCOME, *READERS} == set(MEASURES)


def a_sweep(directory: Path, own: Sequence[Any], *, ddp: Sequence[Any] = (0.9, 0.9, 0.9), **more: Any) -> Path:
    golden(directory, [0.98, 0.98, 0.98])
    cell(directory, "ddp", list(ddp))
    cell(directory, "paft_sync", list(own), **more)
    return directory


def test_quality_lost_is_against_golden_of_the_same_seed(tmp_path: Path) -> None:
    (one,) = found(a_sweep(tmp_path, [0.97, 0.98, 0.96]), expects("quality_lost", at_most=0.02))
    assert one.verdict == "pass" and one.number == pytest.approx(0.01)
    assert (one.low, one.high) == (0.0, pytest.approx(0.02))
    (one,) = found(tmp_path, expects("quality_lost", at_most=0.005))
    assert one.verdict == "fail" and one.subject == "noise paft_sync"


def test_quality_lost_of_a_loss_is_positive_where_the_loss_is_higher(tmp_path: Path) -> None:
    for seed in range(3):
        plain = spec(GPT2, steps=10, seed=seed, faults=[], mitigations=[])
        id = write_trial(tmp_path, plain, grid="golden", labels={"mitigation": "golden"}, metric=(2.0,) * 3,
                         metric_name="val_loss")  # fmt: skip
        write_trial(tmp_path, {**plain, "faults": [FAULT]}, grid="noise", labels={"mitigation": "ddp"}, golden_id=id,
                    metric=(2.3,) * 3, metric_name="val_loss", drawn=5)  # fmt: skip
    (one,) = found(tmp_path, expects("quality_lost", {"grid": "noise"}, at_most=0.1))
    assert one.verdict == "fail" and one.number == pytest.approx(0.3)


def test_gap_closed_without_a_gap_is_inconclusive_and_says_why(tmp_path: Path) -> None:
    (one,) = found(a_sweep(tmp_path, [0.97] * 3, ddp=[0.975] * 3), expects("gap_closed", at_least=0.5))
    assert one.verdict == "inconclusive" and "nothing to close" in one.reason


def test_gap_closed_is_from_chance_where_plain_ddp_broke(tmp_path: Path) -> None:
    golden(tmp_path, [0.98] * 3)
    cell(tmp_path, "ddp", [nan] * 3, outcome="nonfinite")
    cell(tmp_path, "paft_sync", [0.97] * 3)
    (one,) = found(tmp_path, expects("gap_closed", at_least=0.5))
    assert one.verdict == "pass" and one.number == pytest.approx(0.87 / 0.88)  # chance is 0.1
    (one,) = found(tmp_path, expects("quality_lost", at_most=0.02))
    assert one.verdict == "pass"


def test_gap_closed_is_unknown_where_plain_ddp_ended_in_an_error_of_ours(tmp_path: Path) -> None:
    golden(tmp_path, [0.98] * 3)
    cell(tmp_path, "ddp", [None] * 3, outcome="error")
    cell(tmp_path, "paft_sync", [0.97] * 3)
    *_, one = found(tmp_path, expects("gap_closed", at_least=0.5))
    assert one.verdict == "inconclusive" and "plain DDP ended in error; hold quality_lost instead" in one.reason


def test_an_interval_says_of_what_kind_it_is(tmp_path: Path) -> None:
    golden(tmp_path, [0.98] * 5)
    cell(tmp_path, "paft_sync", [0.97, 0.98, 0.96, 0.97, 0.97])
    lost, never = found(tmp_path, expects("quality_lost", at_most=1), expects(OUTCOME, never=("crashed",)))
    assert (lost.spread, never.spread) == ("95 % paired t", "95 % Wilson")


@pytest.mark.parametrize("outcome", ["crashed", "hung", "nonfinite"])
def test_a_run_that_broke_down_fails_every_quality_and_the_outcome(tmp_path: Path, outcome: str) -> None:
    number = 0.1 if outcome == "nonfinite" else None
    a_sweep(tmp_path, [number] * 3, outcome=outcome, reason="SIGSEGV")
    never = expects(OUTCOME, never=("crashed", "hung", "nonfinite"))
    for one in found(tmp_path, expects("quality_lost", at_most=1), expects("worst_rank", at_least=0), never):
        assert one.verdict == "fail" and "SIGSEGV" in one.reason, one


@pytest.mark.parametrize("outcome", ["crashed", "hung", "nonfinite"])
def test_the_number_beside_a_failure_counts_the_run_that_broke_as_chance(tmp_path: Path, outcome: str) -> None:
    a_sweep(tmp_path, [0.98, 0.98])
    trial = spec(RESNET, steps=10, seed=2, faults=[FAULT], mitigations=MITIGATIONS["paft_sync"])
    plain = spec(RESNET, steps=10, seed=2, faults=[], mitigations=[])
    number = 0.0 if outcome == "nonfinite" else None
    write_trial(tmp_path, trial, grid="noise", labels={"mitigation": "paft_sync"}, metric=(number,) * 3, drawn=5,
                outcome=outcome, golden_id=identity(plain))  # fmt: skip
    quality, lost, gap = found(
        tmp_path,
        expects("worst_rank", at_least=0),
        expects("quality_lost", at_most=1),
        expects("gap_closed", at_least=-99),
    )
    assert quality.number == pytest.approx((0.98 + 0.98 + 0.1) / 3)
    assert lost.number == pytest.approx(0.88 / 3) and gap.number == pytest.approx((1 + 1 - 10) / 3)
    assert {one.verdict for one in (quality, lost, gap)} == {"fail"}


def test_an_outcome_that_never_came_shows_its_wilson_interval(tmp_path: Path) -> None:
    (one,) = found(a_sweep(tmp_path, [0.97] * 3), expects(OUTCOME, never=("crashed",)))
    assert (one.verdict, one.number, one.low) == ("pass", 0.0, 0.0)
    assert one.high == pytest.approx(0.5615, abs=1e-4)  # Wilson 1927, 0 of 3
    (one,) = found(tmp_path, expects(OUTCOME, {"mitigation": "ddp", "seed": (0, 1)}, never=("crashed",)))
    assert one.verdict == "inconclusive" and "2 seeds" in one.reason


def test_a_faulty_run_without_a_strike_is_never_a_pass(tmp_path: Path) -> None:
    a_sweep(tmp_path, [0.98] * 3, drawn=0)
    for one in found(tmp_path, expects("quality_lost", at_most=1), expects(OUTCOME, never=("crashed",))):
        assert one.verdict == "inconclusive" and "s0, s1, s2: drew no strike" in one.reason
    (one,) = found(tmp_path, expects("strikes", at_least=1))
    assert one.verdict == "fail" and one.number == 0


def test_strikes_that_changed_nothing_are_never_a_pass(tmp_path: Path) -> None:
    a_sweep(tmp_path, [0.98] * 3, strikes={"drawn": 500, "landed": 500, "changed": 0})
    for one in found(tmp_path, expects("quality_lost", at_most=1), expects(OUTCOME, never=("crashed",))):
        assert one.verdict == "inconclusive" and "s0, s1, s2: has strikes of which none changed a bit" in one.reason
    (one,) = found(tmp_path, expects("strikes", at_least=1))
    assert one.verdict == "pass"


def test_nothing_is_known_not_to_be_degraded_without_its_golden_run(tmp_path: Path) -> None:
    a_sweep(tmp_path, [0.5] * 3, outcome="degraded", history=UNTRAINED)
    never = expects(OUTCOME, never=("crashed", "degraded"))
    (one,) = found(tmp_path, never)
    assert one.verdict == "fail"
    for run in sweep_in(tmp_path).selected:
        if run.golden:
            (run.record.path / "result.json").unlink()
    (one,) = found(tmp_path, never)
    assert one.verdict == "inconclusive" and "s0, s1, s2: has no golden run" in one.reason
    (one,) = found(tmp_path, expects(OUTCOME, never=("crashed",)))
    assert one.verdict == "pass"


def test_overhead_that_was_not_timed_is_inconclusive(tmp_path: Path) -> None:
    (one,) = found(a_sweep(tmp_path, [0.98] * 3), expects("overhead", at_most=1.1))
    assert one.verdict == "inconclusive" and "torchrun" in one.reason


def test_overhead_is_held_where_it_was_timed(tmp_path: Path) -> None:
    timed = {"trial": {"placement": "torchrun"}}
    golden(tmp_path, [0.98] * 3, step_s=0.1, **timed)
    cell(tmp_path, "ddp", [0.9] * 3, step_s=0.1, **timed)
    cell(tmp_path, "paft_sync", [0.98] * 3, step_s=0.11, **timed)
    for limit, verdict in ((1.2, "pass"), (1.05, "fail")):
        (one,) = found(tmp_path, expects("overhead", at_most=limit))
        assert one.verdict == verdict and one.number == pytest.approx(1.1)


def test_a_trial_in_error_is_a_failure_with_its_reason(tmp_path: Path) -> None:
    a_sweep(tmp_path, [0.98] * 3)
    cell(tmp_path, "clip_paft_sync", [None], outcome="error", reason="no space left on device")
    first, second = found(tmp_path, expects("quality_lost", at_most=1))
    assert first.is_error and first.verdict == "fail" and "no space left on device" in first.reason
    assert second.verdict == "pass"
    assert verdict_of([first, second]) == "fail"


def test_golden_runs_that_did_not_learn_fail(tmp_path: Path) -> None:
    golden(tmp_path, [0.1] * 3, outcome="failed_to_learn")
    cell(tmp_path, "paft_sync", [0.1] * 3, outcome="failed_to_learn")
    *trials, one = found(tmp_path, expects("quality_lost", at_most=1))
    assert len(trials) == 3 and all("without faults failed_to_learn" in trial.reason for trial in trials)
    assert one.verdict == "inconclusive" and "golden run that ended in failed_to_learn" in one.reason


def test_outcomes_are_by_the_tolerance_that_the_experiment_has_now(tmp_path: Path) -> None:
    a_sweep(tmp_path, [0.95] * 3, outcome="masked", tolerance=0.01, history=UNTRAINED)
    (one,) = found(tmp_path, expects(OUTCOME, never=("degraded",)))
    assert one.verdict == "fail"


def test_fail_wins_over_inconclusive_and_nothing_is_no_pass() -> None:
    def of(*verdicts: Any) -> str:
        return verdict_of(Finding(subject="", value="", verdict=verdict, source="") for verdict in verdicts)

    assert of("pass", "inconclusive", "fail") == "fail"
    assert of("pass", "inconclusive") == "inconclusive"
    assert of("pass", "pass") == "pass"
    assert of() == "inconclusive"


@pytest.mark.parametrize(
    ("where", "says"),
    [
        ({"mitigation": "paft_snyc"}, "mitigation has no label 'paft_snyc'; did you mean 'paft_sync'?"),
        ({"grid": "nois"}, "grid has no label 'nois'; did you mean 'noise'?"),
        ({"seed": 9}, "seed has no label 9"),
        ({"mitigation": ("paft_sync", "dpd")}, "which it lists; mitigation has no label 'dpd'"),
        ({"mitigation": "paft_sync", "seed": (0, 1, 2, 7)}, "seed 7, which it lists; seed has no label 7"),
        ({"grid": ("noise", "golden"), "mitigation": "ddp"}, "no cell has grid golden and mitigation ddp together"),
        ({"grid": "golden", "mitigation": "ddp"}, "no cell has grid golden and mitigation ddp together"),
    ],
)  # fmt: skip
def test_an_expectation_that_selects_no_cell_is_an_error(tmp_path: Path, where: Any, says: str) -> None:
    sweep = sweep_in(a_sweep(tmp_path, [0.98] * 3))
    with pytest.raises(LookupError, match="selects no cell ") as error:
        select([expects("worst_rank", where, at_least=0)], sweep, "x")
    assert says in str(error.value)


@pytest.mark.parametrize(
    ("expectation", "says"),
    [
        (expects("gap_closed", {"mitigation": "ddp"}, at_least=0), "compares plain DDP with itself"),
        (expects("quality_lost", {"grid": "golden"}, at_most=0), "compares golden runs with themselves"),
        (expects("gap_closed", {"grid": "golden"}, at_least=0), "compares golden runs with themselves"),
    ],
)
def test_an_expectation_that_always_holds_is_an_error(tmp_path: Path, expectation: Expectation, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        select([expectation], sweep_in(a_sweep(tmp_path, [0.98] * 3)), "x")


def test_gap_closed_needs_plain_ddp_in_the_sweep(tmp_path: Path) -> None:
    golden(tmp_path, [0.98])
    cell(tmp_path, "paft_sync", [0.97])
    with pytest.raises(ValueError, match="compares with plain DDP under the same faults, which this sweep has not"):
        select([expects("gap_closed", at_least=0)], sweep_in(tmp_path), "x")


def test_labels_compare_as_numbers_and_yardsticks_are_selected_by_name_only(tmp_path: Path) -> None:
    a_sweep(tmp_path, [0.98])
    trial = spec(RESNET, steps=9, seed=0, faults=[FAULT], mitigations=[])
    write_trial(tmp_path, trial, grid="noise", labels={"mitigation": "ddp", "degree": 0.03, "size": "8"}, drawn=5)
    sweep = sweep_in(tmp_path)

    def cells(where: Any) -> int:
        return len(select([Expectation(where=where, value="worst_rank", at_least=0)], sweep, "x")[0].cells)

    assert cells({"degree": 3.0e-2}) == cells({"degree": "3e-2"}) == cells({"size": 8}) == 1
    assert cells({}) == 3 and cells({"grid": "golden"}) == 1 and cells({"mitigation": "golden"}) == 1


def a_run(steps: Sequence[int], values: Sequence[float]) -> Run:
    planned = plan(load("ci/quick"))[0].plan()
    history = History(step=tuple(steps), **dict.fromkeys(VIEWS, tuple(values)))
    result = replace(unmeasured(planned, "crashed"), history=history)
    return Run(record=TrialRecord(path=Path(), planned=planned, result=result))


def test_the_tail_is_the_last_fifth_of_evaluations_at_least_one_never_the_untrained() -> None:
    assert tail_of(a_run(range(11), [0.0, *range(1, 11)])) == 9.5
    assert tail_of(a_run([0, 50, 100], [0.1, 0.5, 0.9])) == 0.9
    assert tail_of(a_run([0], [0.1])) is None
    assert tail_of(a_run([0, 10], [0.1, nan])) is None


def test_judging_needs_no_torch() -> None:
    code = "import sys\nimport paftbench.gate.judging, paftbench.gate.junit\n"
    code += "sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
