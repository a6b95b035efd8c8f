"""A run that broke down counts one way, as the metric's chance, in every mean of qualities that is shown or judged."""

from collections.abc import Sequence
from math import isnan, nan
from pathlib import Path

import numpy as np
import pytest
from matplotlib.collections import PathCollection
from support.paper_results import METHODS
from support.paper_results import judged as paper_verdict
from support.synthetic_results import FAULT, GPT2, MITIGATIONS, NOISE, RESNET, identity, spec, write_trial

from paftbench.analysis.figures.degree import figure as degree_figure
from paftbench.analysis.figures.overview import figure as overview_figure
from paftbench.analysis.frame import load_results
from paftbench.analysis.quality import quality
from paftbench.analysis.report.trials import trial_table
from paftbench.analysis.runs import load
from paftbench.analysis.table import json_rows as rows
from paftbench.analysis.table import render
from paftbench.analysis.tidy import trial_rows
from paftbench.gate import judged, sweep_of
from paftbench.gate.selecting import select
from paftbench.records.expectation import Expectation
from paftbench.records.result import StrikeCounts
from paftbench.store.directory import read_results, write_failure

SOUND, CHANCE = (0.95, 0.94, 0.96), 0.1
MEAN = (sum(SOUND) + 2 * CHANCE) / 5
Metric = tuple[float | None, float | None, float | None]
# Accuracy of a NaN model is 0, and another rank's may look sound; a process that ended wrote nothing.
NONFINITE: Metric = (0.0, 0.0, 0.97)
NOTHING: Metric = (None, None, None)


def write(directory: Path, label: str, seed: int, metric: Metric, outcome: str) -> None:
    plain = spec(RESNET, steps=10, seed=seed, faults=[], mitigations=[])
    trial = {**plain, "faults": [FAULT] if label != "golden" else [], "mitigations": MITIGATIONS.get(label, [])}
    labels = {"mitigation": label} | ({} if label == "golden" else {"faults.noise.degree": FAULT["degree"]})
    grid, golden_id = ("golden", None) if label == "golden" else ("noise", identity(plain))
    id = write_trial(
        directory, trial, grid=grid, labels=labels, golden_id=golden_id, metric=metric, outcome=outcome,
        drawn=0 if label == "golden" else 5,
    )  # fmt: skip
    if outcome == "crashed":
        write_failure(directory / id, outcome, "signal 11", strikes=StrikeCounts(drawn=5))


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    """Plain DDP in five seeds: three sound, one that ended nonfinite, one that crashed."""
    ends: Sequence[tuple[Metric, str]] = [((v, v, v), "degraded") for v in SOUND]
    for seed, (metric, outcome) in enumerate([*ends, (NONFINITE, "nonfinite"), (NOTHING, "crashed")]):
        write(tmp_path, "golden", seed, (0.99, 0.99, 0.99), "masked")
        write(tmp_path, "ddp", seed, metric, outcome)
        write(tmp_path, "paft_sync", seed, (0.98, 0.98, 0.98), "masked")
    return tmp_path


def test_in_the_table_with_how_many_beside_the_mean(sweep: Path) -> None:
    row = next(row for row in rows(sweep) if row["labels"]["mitigation"] == "ddp")
    assert row["broke_down"] == 2 and row["measured"]["worst_rank"] == 5 and row["claim"] == "interval"
    for view in ("mean_model", "worst_rank", "rank0"):
        assert row[view] == pytest.approx(MEAN)
    text = render(sweep, width=200)
    assert text.count("0.610 2†") == 3 and "count as the metric's chance" in text
    assert "†" not in "".join(line for line in text.splitlines() if "paft_sync" in line)


def test_in_the_gap_that_a_mitigation_closes(sweep: Path) -> None:
    row = next(row for row in rows(sweep) if row["labels"]["mitigation"] == "paft_sync")
    gaps = [(0.98 - v) / (0.99 - v) for v in (*SOUND, CHANCE, CHANCE)]
    assert row["points"]["gap_closed"] == pytest.approx(gaps)
    frame = load_results(str(sweep))
    own = frame[frame.mitigation == "paft_sync"]
    assert own.gap_closed.tolist() == pytest.approx(gaps) and set(own.gap) == {"open"}


def test_in_export_and_frame(sweep: Path) -> None:
    frame = load_results(str(sweep))
    own = frame[frame.mitigation == "ddp"]
    assert own.worst_rank.mean() == pytest.approx(MEAN) and own.rank0.mean() == pytest.approx(MEAN)
    exported = [row for row in trial_rows(load(sweep)) if row["mitigation"] == "ddp"]
    assert [row["worst_rank"] for row in exported] == own.worst_rank.tolist()


def test_in_the_report(sweep: Path) -> None:
    table = trial_table(load(sweep))
    column = [column.name for column in table.columns].index("worst_rank")
    shown = {outcome: values[column].text for _, outcome, values in table.lines}
    assert shown["nonfinite"] == shown["crashed"] == "0.100"


def test_in_the_degree_figure(sweep: Path) -> None:
    axes = degree_figure(load(sweep)).subfigs[0].axes[0]
    means = [float(np.asarray(line.get_ydata())[0]) for line in axes.lines if len(np.asarray(line.get_xdata())) == 1]
    assert pytest.approx(MEAN) in means
    scattered = [part for part in axes.collections if isinstance(part, PathCollection)]
    points = [float(y) for part in scattered for _, y in np.asarray(part.get_offsets())]
    assert 0.95 in points and 0.0 not in points  # what broke stands at the edge


def test_in_the_overview(sweep: Path) -> None:
    ends = overview_figure(load(sweep)).subfigs[1].axes[-1]
    labels = [label.get_text() for label in ends.get_xticklabels()]
    (row,) = [row for row in rows(sweep) if row["labels"]["mitigation"] == "paft_sync"]
    assert labels == ["0 %\n2\nbroke", f"{row['gap_closed']:.0%}".replace("%", " %")]


def test_in_check(sweep: Path) -> None:
    records = read_results(sweep)
    results = {record.id: record.result for record in records if record.result is not None}
    own = sweep_of(sweep, [record.planned for record in records], results)
    expected = [
        Expectation(where={"mitigation": "ddp"}, value=value, at_least=-9) for value in ("worst_rank", "quality_lost")
    ]
    quality, lost = judged(own, select(expected, own, "x"), None, "bound", 0.02)
    assert quality.number == pytest.approx(MEAN) and lost.number == pytest.approx(0.99 - MEAN)
    assert quality.verdict == lost.verdict == "fail"


def test_in_the_papers_verdicts(tmp_path: Path) -> None:
    for seed, (metric, outcome) in enumerate([((0.5,) * 3, "masked"), (NONFINITE, "nonfinite"), (NOTHING, "crashed")]):
        for method, own, end in (("paft", (0.6,) * 3, "masked"), ("ddp", metric, outcome)):
            trial = spec(RESNET, steps=10, seed=seed, faults=[{**NOISE, "degree": 1e-2}], mitigations=METHODS[method])
            labels = {"faults.noise.degree": 1e-2, "mitigation": method}
            id = write_trial(tmp_path, trial, grid="noise", labels=labels, metric=own, outcome=end, drawn=4)
            if end == "crashed":
                write_failure(tmp_path / id, end, "signal 11")
    reading = paper_verdict(tmp_path, "table1/std_1e-2/paft-ddp").reading
    assert reading.mean == pytest.approx(100 * (0.1 + 0.5 + 0.5) / 3)


def test_of_a_loss_chance_is_the_log_of_the_vocabulary_and_no_rank_that_survived(tmp_path: Path) -> None:
    trial = spec(GPT2, steps=10, seed=0, faults=[FAULT], mitigations=[])
    write_trial(tmp_path, trial, grid="noise", labels={"mitigation": "ddp"}, metric=(nan, nan, 2.0), drawn=5,
                metric_name="val_loss", chance=5.545, outcome="nonfinite")  # fmt: skip
    (row,) = rows(tmp_path)
    assert row["mean_model"] == row["worst_rank"] == row["rank0"] == 5.545


def test_where_nobody_knows_chance_there_is_no_mean_and_the_table_says_how_many_broke(tmp_path: Path) -> None:
    for seed in range(3):
        write(tmp_path, "ddp", seed, NOTHING, "crashed")
    (row,) = rows(tmp_path)
    assert isnan(row["worst_rank"]) and row["ranges"]["worst_rank"] is None
    text = " ".join(render(tmp_path, width=200).split())
    assert "3 of 3" in text and "broke down" in text


def test_a_run_that_ended_in_an_error_of_ours_is_no_observation(sweep: Path) -> None:
    write(sweep, "clip_paft_sync", 0, (0.5, 0.5, 0.5), "error")
    own = load(sweep)
    (run,) = [run for run in own.selected if run.outcome == "error"]
    assert quality(own, run, "worst_rank") is None


def test_a_gap_to_a_golden_run_that_broke_is_undefined_not_left_out(tmp_path: Path) -> None:
    for seed, outcome in enumerate(("masked", "nonfinite", "masked")):
        write(tmp_path, "golden", seed, (0.99, 0.99, 0.99), outcome)
        write(tmp_path, "ddp", seed, (0.5, 0.5, 0.5), "degraded")
        write(tmp_path, "paft_sync", seed, (0.9, 0.9, 0.9), "degraded")
    row = next(row for row in rows(tmp_path) if row["labels"]["mitigation"] == "paft_sync")
    assert isnan(row["gap_closed"]) and "undefined" in render(tmp_path)
