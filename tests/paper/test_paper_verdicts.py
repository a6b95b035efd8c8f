"""The verdict that runs give on a claim: its word, from differences within seeds."""

from collections import Counter
from math import nan
from pathlib import Path

import pytest
from support.paper_results import METHODS, judged, of, pair, sweep_of
from support.synthetic_results import NOISE, RESNET, spec, write_trial

from paftbench.analysis.runs import load
from paftbench.paper import draw, render, verdicts
from paftbench.paper.claim import DEGREE
from paftbench.paper.claims import claims_of
from paftbench.paper.items import item_of
from paftbench.paper.judging import Reading, read, word_of
from paftbench.paper.table_text import table_text
from paftbench.records.result import StrikeCounts
from paftbench.store.directory import write_failure


@pytest.mark.parametrize(
    ("gains", "word"),
    [
        ([0.1, 0.2, 0.1], "same direction"),
        ([-0.1, -0.2, -0.1], "opposite"),
        ([0.1, 0.2, -0.01], "no effect"),
        ([0.1, 0.2, 0.0], "no effect"),
        ([0.1, 0.2], "not enough seeds"),
        ([0.01, 0.01, 0.02], "no effect"),  # within the tolerance
        ([0.3, 0.25, 0.3, 0.2, -0.01], "same direction"),
        ([0.3, -0.3, 0.3, -0.2, 0.1], "no effect"),
        ([-0.3, -0.25, -0.3, -0.2, 0.01], "opposite"),
    ],
)
def test_the_word_follows_from_the_differences_within_seeds(tmp_path: Path, gains: list[float], word: str) -> None:
    pair(tmp_path, gains)
    verdict = judged(tmp_path, "table1/std_1e-2/paft-ddp")
    assert verdict.word == word and verdict.reading.seeds == len(gains)
    assert verdict.reading.mean == pytest.approx(100 * sum(gains) / len(gains))
    assert verdict.agrees == (None if len(gains) < 3 else word == "same direction")


def test_where_the_paper_finds_no_difference_none_agrees_and_any_is_opposite(tmp_path: Path) -> None:
    for name, gains in (("none", [0.01, -0.01, 0.0]), ("some", [0.1, 0.1, 0.1])):
        pair(tmp_path / name, gains, where=((DEGREE, 1e-4),))
    none, some = (judged(tmp_path / name, "table1/std_1e-4/paft-ddp") for name in ("none", "some"))
    assert (none.word, none.agrees) == ("no effect", True)
    assert (some.word, some.agrees) == ("opposite", False)


@pytest.mark.parametrize("scale", ["small", "paper"])
@pytest.mark.parametrize(
    ("gains", "word"),
    [
        ([0.3, -0.3, 0.3, -0.3, 0.1], "undecided"),
        ([0.3, -0.3, 0.02], "undecided"),
        ([0.01, 0.01, 0.03], "undecided"),  # the mean is within the tolerance of 2 points, the range is not
        ([0.001, 0.001, 0.002], "no effect"),
        ([0.01, 0.02, 0.01, -0.01, 0.01], "undecided"),  # -.56 to 2.16 points
        ([0.01, 0.01, 0.01, -0.01, 0.01], "no effect"),
        ([0.03, 0.1, 0.1], "opposite"),
        ([-0.1, -0.1, -0.1, -0.2, -0.1], "opposite"),
    ],
)
def test_noise_alone_never_shows_that_there_is_no_difference(
    tmp_path: Path, gains: list[float], word: str, scale: str
) -> None:
    pair(tmp_path, gains, where=((DEGREE, 1e-4),))
    verdict = judged(tmp_path, "table1/std_1e-4/paft-ddp", scale)
    at_paper = {"no effect": "reproduced", "opposite": "not reproduced"}
    assert verdict.word == (at_paper.get(word, word) if scale == "paper" else word)
    assert verdict.agrees is (word == "no effect")
    shown = f"1 claims: {verdict.word}"
    assert shown in render([verdict]) and (verdict.word == "no effect") == (f"{shown} (agrees)" in render([verdict]))


def test_what_the_papers_own_runs_differ_by_is_no_difference_of_ours(tmp_path: Path) -> None:
    claim = of("table2", "table2/32_workers/std_1e-4/paft_sync_H5-ddp")  # its margin is 2.8 points
    reading = Reading(mean=2.4, low=2.2, high=2.7, seeds=3, sign=1)
    assert word_of(claim, reading, "small", 2.0) == "no effect"
    assert word_of(claim, reading, "paper", 2.0) == "reproduced"


def test_reproduced_is_said_at_the_papers_scale_alone(tmp_path: Path) -> None:
    theirs = 24.7
    for name, gains in (("as_large", [0.24, 0.26, 0.25]), ("half", [0.13, 0.14, 0.13]), ("small", [0.1, 0.1, 0.11])):
        pair(tmp_path / name, gains)
    words = {
        (name, scale): judged(tmp_path / name, "table1/std_1e-2/paft-ddp", scale).word
        for name in ("as_large", "half", "small")
        for scale in ("small", "paper")
    }
    assert {words[name, "small"] for name in ("as_large", "half", "small")} == {"same direction"}
    assert [words[name, "paper"] for name in ("as_large", "half", "small")] == [
        "reproduced", "reproduced", "not reproduced",
    ]  # fmt: skip
    claim = of("table1", "table1/std_1e-2/paft-ddp")
    assert claim.difference == pytest.approx(theirs)
    wide = Reading(mean=11.0, low=1.0, high=30.0, seeds=5, sign=1)
    assert word_of(claim, wide, "paper") == "reproduced"  # theirs lies in our interval
    assert word_of(claim, Reading(mean=-30.0, low=-31.0, high=-29.0, seeds=5, sign=-1), "paper") == "not reproduced"


def test_no_difference_of_the_papers_is_reproduced_by_none(tmp_path: Path) -> None:
    pair(tmp_path / "none", [0.01, -0.01, 0.0], where=((DEGREE, 1e-4),))
    pair(tmp_path / "some", [0.1, 0.1, 0.1], where=((DEGREE, 1e-4),))
    words = [judged(tmp_path / name, "table1/std_1e-4/paft-ddp", "paper").word for name in ("none", "some")]
    assert words == ["reproduced", "not reproduced"]


def test_missing_cells_and_empty_directories_are_not_run(tmp_path: Path) -> None:
    pair(tmp_path / "some", [0.1, 0.1, 0.1])
    words = Counter(verdict.word for verdict in verdicts("table1", tmp_path / "some", scale="small"))
    assert words == {"same direction": 1, "not run": len(claims_of("table1")) - 1}
    for directory in (tmp_path / "empty", tmp_path / "nonesuch"):
        (tmp_path / "empty").mkdir(exist_ok=True)
        assert {verdict.word for verdict in verdicts("table1", directory, scale="small")} == {"not run"}


def test_rank_0_decides_and_metrics_that_point_elsewhere_are_said(tmp_path: Path) -> None:
    pair(tmp_path, [0.1, 0.2, 0.1])
    verdict = judged(tmp_path, "table1/std_1e-2/paft-ddp")
    assert verdict.word == "same direction" and verdict.dissenting == ("worst_rank", "mean_model")
    text = render([verdict])
    assert "+0.00!" in text and "Another metric than rank 0's points elsewhere in 1." in text


def test_a_run_that_broke_down_counts_as_guessing(tmp_path: Path) -> None:
    for seed in range(3):
        for method, metric, outcome in (("paft", (0.6,) * 3, "masked"), ("ddp", (nan,) * 3, "nonfinite")):
            trial = spec(RESNET, steps=10, seed=seed, faults=[{**NOISE, "degree": 1e-2}], mitigations=METHODS[method])
            write_trial(
                tmp_path, trial, grid="noise", labels={DEGREE: 1e-2, "mitigation": method}, metric=metric,
                outcome=outcome, drawn=4,
            )  # fmt: skip
    verdict = judged(tmp_path, "table1/std_1e-2/paft-ddp")
    assert verdict.word == "same direction" and verdict.reading.mean == pytest.approx(50.0)  # chance is 0.1


@pytest.mark.parametrize("outcome", ["crashed", "hung"])
def test_a_run_whose_process_wrote_no_result_counts_as_guessing_too(tmp_path: Path, outcome: str) -> None:
    pair(tmp_path, [0.1, 0.1, 0.1])
    for run in load(tmp_path).selected:
        if run.mitigation == "ddp" and run.seed < 2:
            write_failure(run.record.path, outcome, "exit code 1", strikes=StrikeCounts(drawn=4))
    reading = judged(tmp_path, "table1/std_1e-2/paft-ddp").reading
    assert reading.seeds == 3 and reading.mean == pytest.approx((60.0 + 60.0 + 10.0) / 3)  # chance is 0.1
    _, text = draw("table1", tmp_path, scale="small")
    assert "26.7 (10.0..60.0)" in text.read_text()


def test_a_printed_number_of_some_runs_says_of_how_many(tmp_path: Path) -> None:
    sweep_of(tmp_path, "table3", steps=20)
    run = next(run for run in load(tmp_path).selected if run.mitigation == "paft" and run.trial.world_size == 4)
    assert "(2/3)" not in table_text(item_of("table3"), load(tmp_path))
    write_failure(run.record.path, "crashed", "exit code 1")
    (run.record.path / "steps.jsonl").unlink()
    text = table_text(item_of("table3"), load(tmp_path))
    assert text.count("(2/3)") == 1


def test_a_reading_needs_three_seeds_and_its_interval_leaves_zero_out_from_five() -> None:
    assert read([], []).sign is None and read([0, 1], [1.0, 1.0]).sign is None
    assert read([0, 1, 2], [1.0, 2.0, 3.0]).sign == 1 and read([0, 1, 2], [-1.0, -2.0, -3.0]).sign == -1
    assert read([0, 1, 2, 3, 4], [1.0, 1.0, 1.0, 1.0, -0.5]).sign == 0  # -.13 to 1.53; a bootstrap said .1 to 1
    assert read([0, 1, 2, 3, 4], [1.0, 1.0, 1.0, 1.0, -0.1]).sign == 1
    assert read([0, 1, 2, 3, 4], [1.0] * 5).sign == 1
    assert read([0, 1, 2], [1.0, 2.0, 3.0], tolerance=2.0).sign == 0
