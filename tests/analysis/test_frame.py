"""`load_results`: a row per trial, from there a row per step, as pandas users expect."""

import re
import subprocess
import sys
from math import inf, isnan, nan
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from support.checkout import ROOT
from support.synthetic_results import (
    FAULT,
    FLIPS,
    NOISE,
    RESNET,
    cell,
    golden,
    quickstart,
    spec,
    steps_rows,
    write_trial,
)

import paftbench
from paftbench.analysis.table import json_rows as table_rows


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return quickstart(tmp_path_factory.mktemp("frame") / "sweep", seeds=3, steps=20)


def decided(step: int, **own: Any) -> dict[str, Any]:
    fields = {"rule": "code", "layer": "fc.weight", "gradient": 0.5, "spread": 0.1, "sigma": None, "lr": 0.1,
              "period_before": 10, "period": 5}  # fmt: skip
    return {"step": step, **fields, **own}


def one_trial(directory: Path, rows: list[dict[str, Any]], **fields: Any) -> None:
    trial = spec(RESNET, steps=len(rows), seed=0, faults=[FAULT], mitigations=[], **fields)
    write_trial(directory, trial, grid="noise", labels={"mitigation": "ddp"}, rows=rows, drawn=1)


def test_a_trial_is_a_row_with_its_axes_results_and_settings(directory: Path) -> None:
    frame = paftbench.load_results(directory)
    assert len(frame) == frame.id.nunique() == 50
    row = frame[(frame.grid == "noise") & (frame.degree == 0.03) & (frame.mitigation == "paft_sync")].iloc[0]
    assert row["faults.noise.degree"] == 0.03 and row.seed == 0 and row.unit == "std" and row.fault == "gaussian_noise"
    assert row.metric == "accuracy" and row.judge == "worst_rank" and row["steps"] == 20 and row.world_size == 4
    assert row.syncs == 2 and row.periods == [10] and row.extra_bytes == 640_000
    assert row.strikes_drawn == 20 * 320_000 and row.nsr_median == 0.12
    assert {"divergence_final", "divergence_before_sync", "inconsistency_max", "step_median_s", "total_s"} <= {*frame}
    assert all(str(dtype) in ("float64", "int64") for dtype in frame[["worst_rank", "seed", "overhead"]].dtypes)


def test_gap_closed_is_the_tables(directory: Path) -> None:
    frame = paftbench.load_results(directory)
    for row in table_rows(directory):
        own = frame[(frame.grid == row["grid"]) & (frame.mitigation == row["labels"]["mitigation"])]
        if "faults.noise.degree" in row["labels"]:
            own = own[own.degree == row["labels"]["faults.noise.degree"]]
        if isinstance(row["gap_closed"], float):
            assert own.gap_closed.mean() == pytest.approx(row["gap_closed"]) and "open" in {*own.gap}
        elif row["grid"] != "golden":
            assert own.gap_closed.isna().all() and {*own.gap} == {row["gap_closed"]}


def test_a_gap_says_why_it_is_no_number(tmp_path: Path) -> None:
    golden(tmp_path, [0.99, 0.99, 0.99])
    cell(tmp_path, "ddp", [0.5, 0.98, nan])
    cell(tmp_path, "paft_sync", [0.9, 0.9, 0.9])
    frame = paftbench.load_results(tmp_path)
    synced = frame[frame.mitigation == "paft_sync"].sort_values("seed")
    assert synced.gap.tolist() == ["open", "no gap", "open"]  # plain DDP's loss that is no number counts as chance
    assert synced.gap_closed.isna().tolist() == [False, True, False]
    assert frame[frame.mitigation == "golden"].gap.isna().all()


def test_filtered_sorted_and_joined_frames_still_have_steps(directory: Path) -> None:
    frame = paftbench.load_results(directory)
    masked = frame[frame.outcome == "masked"]
    steps = masked.steps()
    assert len(steps) == masked["steps"].sum() and {*steps.id} == {*masked.id}
    assert type(steps) is pd.DataFrame
    best = frame.query("mitigation == 'ddp'").sort_values("worst_rank").head(2)
    assert list(best.steps().id.unique()) == list(best.id)
    both = pd.concat([best, frame[frame.mitigation == "golden"]])
    assert isinstance(both, type(frame)) and both.steps().id.nunique() == len(both)
    assert steps.merge(frame[["id", "outcome"]], on="id").outcome.eq("masked").all()


def test_a_frame_without_its_directories_says_so(directory: Path) -> None:
    frame = paftbench.load_results(directory)
    with pytest.raises(LookupError, match="column 'path'"):
        frame[["id", "outcome"]].steps()
    assert frame[frame.outcome == "hung"].steps().empty


def test_a_step_has_its_trial_its_losses_and_its_seconds(tmp_path: Path) -> None:
    trial = spec(RESNET, steps=3, seed=0, faults=[FAULT], mitigations=[])
    rows = steps_rows(trial, [0.1, 0.2, 0.3], [None, 0.25, None], lambda step: 7)
    rows[0] |= {"loss": [1.0, 2.0, 3.0, 6.0], "seconds": {"compute": 0.25, "inject": 0.5}}
    rows[1] |= {"loss": [1.0, nan, 2.0, inf], "seconds": {"compute": 0.5}}
    one_trial(tmp_path, rows)
    steps = paftbench.load_results(tmp_path).steps()
    assert steps.loss_mean[0] == 3.0 and steps.loss_worst[0] == 6.0 and steps.loss_rank0[0] == 1.0
    assert isnan(steps.loss_worst[1]) and steps.loss_rank0[1] == 1.0
    assert steps["seconds.compute"].tolist()[:2] == [0.25, 0.5] and steps["seconds.inject"].isna().tolist()[1:] == [
        True, True,
    ]  # fmt: skip
    assert steps.step.tolist() == [0, 1, 2] and steps.mitigation.eq("ddp").all() and steps.strikes.eq(7).all()
    assert steps.divergence_before.isna().tolist() == [True, False, True] and steps.synced.tolist() == [
        False, True, False,
    ]  # fmt: skip
    per_rank = paftbench.load_results(tmp_path).steps(per_rank=True)
    assert per_rank.loc[0, ["loss_0", "loss_1", "loss_2", "loss_3"]].tolist() == [1.0, 2.0, 3.0, 6.0]


def test_a_decision_is_spread_over_columns(tmp_path: Path) -> None:
    trial = spec(RESNET, steps=3, seed=0, faults=[FAULT], mitigations=[])
    rows = steps_rows(trial, [0.1, 0.2, 0.3], [None, 0.25, None], lambda step: 7)
    one_trial(tmp_path / "plain", [{**row, "decision": None} for row in rows])
    assert not [name for name in paftbench.load_results(tmp_path / "plain").steps() if "decision" in name]
    one_trial(tmp_path / "dyn", [{**row, "decision": decided(1) if row["step"] == 1 else None} for row in rows])
    steps = paftbench.load_results(tmp_path / "dyn").steps()
    assert steps["decision.period"].dropna().tolist() == [5] and steps["decision.layer"][1] == "fc.weight"
    assert steps["decision.sigma"].isna().all() and steps["decision.sigma"].dtype == float


def test_an_axis_that_says_something_else_than_the_trial_gets_a_prefix(tmp_path: Path) -> None:
    own = spec(RESNET, steps=10, seed=0, faults=[], mitigations=[])
    write_trial(tmp_path, own, grid="golden", labels={"mitigation": "golden", "grid": "noise", "steps": "short"})
    other = spec(RESNET, steps=10, seed=1, faults=[], mitigations=[])
    write_trial(tmp_path, other, grid="golden", labels={"mitigation": "golden", "world_size": 4})
    frame = paftbench.load_results(tmp_path)
    assert {*frame.grid} == {"golden"} and {*frame["steps"]} == {10}
    assert {*frame["label.grid"].dropna()} == {"noise"} and {*frame["label.steps"].dropna()} == {"short"}
    assert "label.world_size" not in frame and {*frame.world_size} == {4}


def test_the_degree_is_the_swept_faults(tmp_path: Path) -> None:
    faults = [{**NOISE, "degree": 0.5}, {**FLIPS, "degree": 0.25}]
    labels = {"mitigation": "ddp", "faults.flips.degree": 0.25}
    for seed, given in enumerate((labels, {"mitigation": "ddp"})):
        trial = spec(RESNET, steps=10, seed=seed, faults=faults, mitigations=[])
        write_trial(tmp_path, trial, grid="flips", labels=given, drawn=1)
    frame = paftbench.load_results(tmp_path).set_index("seed")
    assert frame.degree[0] == 0.25 and frame.unit[0] == "per_element" and isnan(frame.degree[1])
    assert frame.fault[0] == "gaussian_noise+bit_flip" and frame.site[0] == "result"


def test_unfinished_trials_have_no_quality_and_crashed_ones_that_of_chance(tmp_path: Path) -> None:
    golden(tmp_path, [0.9])
    cell(tmp_path, "ddp", [0.5], outcome=None)
    cell(tmp_path, "paft_sync", [None], outcome="crashed", reason="killed", mitigation={"syncs": None, "periods": []})
    frame = paftbench.load_results(tmp_path).set_index("mitigation")
    assert frame.outcome.to_dict() == {"golden": "masked", "ddp": "missing", "paft_sync": "crashed"}
    assert frame.loc[["ddp", "paft_sync"], "syncs"].isna().all()
    assert frame.worst_rank.isna().to_dict() == {"golden": False, "ddp": True, "paft_sync": False}
    assert frame.worst_rank["paft_sync"] == frame.chance["golden"] == 0.1
    assert frame.reason["paft_sync"] == "killed"


def test_one_trial_directory_is_one_row_with_its_gap(directory: Path) -> None:
    frame = paftbench.load_results(directory)
    own = frame[(frame.mitigation == "paft_sync") & (frame.degree == 0.03)].iloc[0]
    alone = paftbench.load_results(str(directory / own.id))
    assert len(alone) == 1 and alone.gap_closed[0] == own.gap_closed and alone.steps().shape[0] == 20


def test_frames_need_no_torch_and_the_package_no_pandas(directory: Path) -> None:
    code = (
        "import sys, paftbench\nassert 'pandas' not in sys.modules and 'load_results' in paftbench.__all__\n"
        f"paftbench.load_results({str(directory)!r}).steps()\nsys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_every_column_is_documented(tmp_path: Path) -> None:
    trial = spec(RESNET, steps=2, seed=0, faults=[FAULT], mitigations=[])
    rows = steps_rows(trial, [0.1, 0.2], [None, 0.25], lambda step: 7)
    one_trial(tmp_path, [{**row, "decision": decided(row["step"])} for row in rows])
    frame = paftbench.load_results(tmp_path)
    text = (ROOT / "docs" / "reading.md").read_text()
    named = set(re.findall(r"`([\w.]+)`", text))
    shown = {*frame, *frame.steps()} - {"decision.step"}
    assert not [name for name in shown if name not in named and not name.startswith("seconds.")]
    assert {"decision.layer", "loss_worst", "nsr_max", "path"} <= shown


def test_what_cannot_be_read_is_said(tmp_path: Path) -> None:
    with pytest.raises(LookupError, match="not a directory"):
        paftbench.load_results(tmp_path / "nowhere")
    with pytest.raises(LookupError, match="holds no trials"):
        paftbench.load_results(tmp_path)
    golden(tmp_path, [0.9], schema=2)
    with pytest.raises(ValueError, match="schema 2"):
        paftbench.load_results(tmp_path)
