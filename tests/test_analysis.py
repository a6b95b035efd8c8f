"""Reading sweeps: cells, gaps, rates, tables; on directories written without training."""

import hashlib
import json
import subprocess
import sys
from math import isnan, nan
from pathlib import Path
from typing import Any

import pytest
from synthetic_results import FLIPS, GPT2, MITIGATIONS, NOISE, RESNET, quickstart, spec, write_trial
from typer.testing import CliRunner

from paftbench.analysis.injections import injections_rows, render_injections
from paftbench.analysis.runs import load
from paftbench.analysis.stats import bootstrap, claim_of, summarise, wilson
from paftbench.analysis.table import render, rows
from paftbench.analysis.text import compact, number, size, to_json

FAULT = {**NOISE, "degree": 0.03}


def cell(
    directory: Path,
    mitigation: str,
    metrics: list[Any],
    /,
    *,
    faults: Any = None,
    grid: str = "noise",
    trial: Any = None,
    **result: Any,
) -> None:
    """A trial per seed; `metrics` are (mean_model, worst_rank, rank0), or one number for all three."""
    for seed, metric in enumerate(metrics):
        values = metric if isinstance(metric, tuple) else (metric,) * 3
        faults_of = [FAULT] if faults is None else faults
        own = spec(
            RESNET, steps=10, seed=seed, faults=faults_of, mitigations=MITIGATIONS.get(mitigation, []), **(trial or {})
        )
        golden = spec(RESNET, steps=10, seed=seed, faults=[], mitigations=[], **(trial or {}))
        given = {"drawn": 5, **result}
        write_trial(
            directory, own, grid=grid, labels={"mitigation": mitigation}, golden_id=_id(golden) if faults_of else None,
            metric=values, **given,
        )  # fmt: skip


def _id(trial: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(trial, sort_keys=True).encode()).hexdigest()[:16]


def golden(directory: Path, metrics: list[Any], **more: Any) -> None:
    cell(directory, "golden", metrics, faults=[], grid="golden", drawn=0, **more)


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


def test_a_gap_against_a_run_that_broke_is_undefined_not_left_out(tmp_path: Path) -> None:
    golden(tmp_path, [0.99, 0.99, 0.99])
    cell(tmp_path, "ddp", [0.5, nan, 0.5])
    cell(tmp_path, "paft_sync", [0.9, 0.9, 0.9])
    assert isnan(row_of(tmp_path, "paft_sync")["gap_closed"])
    assert "undefined" in render(tmp_path)


def test_nothing_is_compared_without_golden_or_ddp(tmp_path: Path) -> None:
    cell(tmp_path, "paft_sync", [0.9])
    row = row_of(tmp_path, "paft_sync")
    assert row["gap_closed"] is None and row["overhead"] is None


def test_ddp_is_found_by_labels_where_the_mitigation_label_sets_more(tmp_path: Path) -> None:
    golden(tmp_path, [1.0])
    cell(tmp_path, "ddp", [0.5])
    own = spec(RESNET, steps=10, seed=0, faults=[FAULT], mitigations=MITIGATIONS["paft_sync"], exact=False)
    own["optimizer"]["lr"] = 0.05
    id = _id(spec(RESNET, steps=10, seed=0, faults=[], mitigations=[]))
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


def test_a_crash_has_no_numbers_and_the_table_still_stands(tmp_path: Path) -> None:
    golden(tmp_path, [0.99])
    nothing: dict[str, Any] = {
        "divergence": {}, "nsr": {}, "strikes": {}, "mitigation": {}, "time": {}, "history": None, "parameters": None,
    }  # fmt: skip
    cell(tmp_path, "ddp", [None], outcome="crashed", **nothing)
    row = row_of(tmp_path, "ddp")
    assert row["outcomes"] == {"crashed": 1} and row["worst_rank"] is None and row["strikes"]["drawn"] is None
    assert "crashed" in render(tmp_path)


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


def test_five_seeds_get_a_seeded_interval_inside_the_range() -> None:
    values = [0.9, 0.91, 0.92, 0.95, 0.99]
    low, high = bootstrap(range(5), values)
    assert min(values) < low < sum(values) / 5 < high < max(values)
    assert (low, high) == bootstrap(range(5), values)
    assert summarise(range(5), values).claim == "interval"


def test_runs_of_a_seed_are_resampled_together() -> None:
    seeds, values = [0, 0, 1, 1, 2, 2, 3, 3, 4, 4], [0.0, 1.0] * 5
    assert bootstrap(seeds, values) == (0.5, 0.5)


def test_wilson_matches_published_values() -> None:
    assert wilson(0, 10) == pytest.approx((0.0, 0.2775), abs=1e-4)
    assert wilson(15, 50) == pytest.approx((0.1910, 0.4375), abs=1e-4)
    assert wilson(0, 0) == (0.0, 1.0)
    with pytest.raises(ValueError, match="hits"):
        wilson(3, 2)


def test_by_an_axis_pools_runs_but_never_two_workloads(tmp_path: Path) -> None:
    quickstart(tmp_path / "sweep", steps=20)
    found = rows(tmp_path / "sweep", by="mitigation")
    assert [row["cell"] for row in found if "paft_sync" in row["cell"]] == [
        "paft_sync gpt2", "paft_sync llama2", "paft_sync resnet", "clip_paft_sync",
    ]  # fmt: skip
    pooled = next(row for row in found if row["cell"] == "paft_sync resnet")
    assert pooled["trials"] == 12 and pooled["seeds"] == 3


def test_an_unknown_axis_names_the_known_ones(tmp_path: Path) -> None:
    quickstart(tmp_path / "sweep", seeds=1, steps=20)
    with pytest.raises(ValueError, match=r"'mitigations'; did you mean 'mitigation'\?"):
        rows(tmp_path / "sweep", by="mitigations")


def test_golden_rows_of_several_workloads_stay_apart(tmp_path: Path) -> None:
    quickstart(tmp_path / "sweep", steps=20)
    found = [row for row in rows(tmp_path / "sweep") if row["grid"] == "golden"]
    assert [row["cell"] for row in found] == ["golden gpt2", "golden llama2", "golden resnet"]
    assert [row["seeds"] for row in found] == [1, 1, 3]


def test_degrees_are_ordered_as_numbers_and_ddp_comes_first(tmp_path: Path) -> None:
    quickstart(tmp_path / "sweep", seeds=1, steps=20)
    noise = [row["cell"] for row in rows(tmp_path / "sweep") if row["grid"] == "noise"]
    assert noise == [
        f"{mitigation} degree={degree}"
        for degree in ("0.001", "0.01", "0.03")
        for mitigation in ("ddp", "paft_sync", "averaging_limit")
    ]


@pytest.mark.parametrize("width", [100, 120, 140, 200])
def test_the_table_fits_its_width(tmp_path: Path, width: int) -> None:
    quickstart(tmp_path / "sweep", steps=20)
    text = render(tmp_path / "sweep", width=width)
    head = text.split("accuracy, val_loss: mean")[0]
    assert max(map(len, head.splitlines())) <= width
    for name in (
        "outcomes",
        "mean_model",
        "worst_rank",
        "rank0",
        "gap_closed",
        "divergence",
        "nsr",
        "strikes",
        "overhead",
    ):
        assert name in head
    assert "clip_paft_sync" in head and "averaging_limit" in head


def test_one_trial_directory_is_compared_with_its_siblings(tmp_path: Path) -> None:
    golden(tmp_path, [1.0, 1.0])
    cell(tmp_path, "ddp", [0.5, 0.5])
    cell(tmp_path, "paft_sync", [0.75, 0.9])
    one = spec(RESNET, steps=10, seed=1, faults=[FAULT], mitigations=MITIGATIONS["paft_sync"])
    (row,) = rows(tmp_path / _id(one))
    assert row["trials"] == 1 and row["gap_closed"] == pytest.approx(0.8)


def test_injections_are_counted_by_site_bit_class_parameter_and_magnitude(tmp_path: Path) -> None:
    event = {"step": 1, "attempt": 0, "fault": "f", "rank": 0, "site": "result", "parameter": "a", "index": 3,
             "landed": True, "bits_before": "0x3f80", "value_before": 1.0, "norm": None, "elements": None}  # fmt: skip
    sparse = [
        {**event, "bit": 15, "value_after": -1.0},
        {**event, "bit": 14, "value_after": nan},
        {**event, "bit": 7, "value_after": 1.5},
        {**event, "bit": 6, "value_after": 1.0, "landed": False},
    ]
    dense = {**event, "parameter": None, "index": None, "bit": None, "value_before": None, "value_after": None,
             "norm": 3.0, "elements": 900, "site": "contribution"}  # fmt: skip
    trial = spec(RESNET, steps=10, seed=0, faults=[FAULT], mitigations=[], precision="bf16")
    write_trial(tmp_path, trial, grid="g", labels={"mitigation": "ddp"}, drawn=2000, injections=[*sparse, dense])
    found = {(row["by"], row["value"]): row for row in injections_rows(tmp_path)}
    assert found["site", "result"]["strikes"] == 4 and found["site", "contribution"]["strikes"] == 900
    assert [found["bit class", kind]["events"] for kind in ("sign", "exponent", "mantissa")] == [1, 2, 1]
    assert found["parameter", "(whole gradient)"]["events"] == 1 and found["parameter", "a"]["landed"] == 3
    assert found["magnitude", "not finite"]["events"] == 1 and found["magnitude", "1e-01"]["strikes"] == 901
    assert "904 of 2k strikes" in render_injections(tmp_path)
    assert injections_rows(tmp_path, by="mitigation")[0]["mitigation"] == "ddp"


def test_no_logged_strikes_is_said(tmp_path: Path) -> None:
    golden(tmp_path, [0.9])
    with pytest.raises(ValueError, match="no strikes are logged"):
        injections_rows(tmp_path)


def test_a_directory_without_results_is_refused_with_the_reason(tmp_path: Path) -> None:
    with pytest.raises(LookupError):
        load(tmp_path / "nowhere")
    with pytest.raises(LookupError, match="no trials"):
        load(tmp_path)
    cell(tmp_path / "planned", "ddp", [0.9, 0.9], outcome=None)
    with pytest.raises(ValueError, match="nothing has finished"):
        rows(tmp_path / "planned")
    cell(tmp_path / "old", "ddp", [0.9], schema=0)
    with pytest.raises(ValueError, match="schema 0"):
        rows(tmp_path / "old")


def test_numbers_read_well() -> None:
    assert [number(v) for v in (None, nan, 0.0, 0.98765, 12.345, 4321.0, 1e-5, 1e20)] == [
        "-", "nan", "0.000", "0.988", "12.3", "4321", "1.00e-05", "1.00e+20",
    ]  # fmt: skip
    assert [compact(v) for v in (None, 0, 950, 12_345, 999_999, 4e7)] == ["-", "0", "950", "12.3k", "1M", "40M"]
    assert [size(v) for v in (None, 0, 6_400_000)] == ["-", "0 B", "6.4 MB"]
    assert json.loads(to_json([{"a": nan, "b": [1.5]}])) == [{"a": "nan", "b": [1.5]}]


def test_the_command_prints_a_table_and_json(tmp_path: Path) -> None:
    import typer

    from paftbench.cli.table import table

    quickstart(tmp_path / "sweep", seeds=1, steps=20)
    app = typer.Typer()
    app.command()(table)
    shown = CliRunner().invoke(app, [str(tmp_path / "sweep")])
    assert shown.exit_code == 0 and "gap_closed" in shown.stdout
    parsed = CliRunner().invoke(app, [str(tmp_path / "sweep"), "--json"])
    assert len(json.loads(parsed.stdout)) == len(rows(tmp_path / "sweep"))
    strikes = CliRunner().invoke(app, [str(tmp_path / "sweep"), "--injections", "--by", "grid"])
    assert strikes.exit_code == 0 and "bit class" in strikes.stdout


def test_looking_never_imports_what_trains() -> None:
    code = (
        "import sys, paftbench.cli.table, paftbench.cli.plot, paftbench.theory, paftbench.analysis.table,"
        " paftbench.analysis.injections, paftbench.analysis.figures.overview, paftbench.analysis.figures.divergence,"
        " paftbench.analysis.figures.curves, paftbench.analysis.figures.timeline;"
        "assert not {'torch', 'pandas', 'matplotlib.pyplot'} & set(sys.modules), sorted(sys.modules)"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True)


def test_a_gap_is_kept_apart_by_workload(tmp_path: Path) -> None:
    quickstart(tmp_path / "sweep", steps=20)
    sweep = load(tmp_path / "sweep")
    gpt2 = next(run for run in sweep.selected if run.workload == GPT2["name"] and run.mitigation == "paft_sync")
    assert sweep.golden(gpt2) is not None and sweep.ddp(gpt2) is not None
    assert {run.workload for run in (*sweep.goldens(gpt2), *sweep.limits(gpt2))} == {"gpt2"}
