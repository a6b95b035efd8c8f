"""Tables of a sweep and of its injection log, as text, rows and JSON; on directories written without training."""

import json
import subprocess
import sys
from math import nan
from pathlib import Path

import pytest
from support.synthetic_core import DYN, GRIDS, core
from support.synthetic_results import (
    FAULT,
    GPT2,
    MITIGATIONS,
    RESNET,
    cell,
    golden,
    identity,
    quickstart,
    spec,
    write_trial,
)
from typer.testing import CliRunner

from paftbench.analysis.injections import injections_rows, render_injections
from paftbench.analysis.runs import load
from paftbench.analysis.table import json_rows as rows
from paftbench.analysis.table import render
from paftbench.analysis.text import compact, number, size, to_json
from paftbench.records.result import StrikeCounts
from paftbench.store.directory import write_failure


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


def test_runs_of_equal_labels_and_other_fields_are_other_cells_that_say_so(tmp_path: Path) -> None:
    labels = {"mitigation": "paft_sync"}
    for period, steps in ((10, 20), (5, 20), (5, 40)):
        mitigations = [{**MITIGATIONS["paft_sync"][0], "period": period}]
        trial = spec(RESNET, steps=steps, seed=0, faults=[FAULT], mitigations=mitigations)
        write_trial(tmp_path, trial, grid="noise", labels=labels)
    found = {row["cell"]: row["trials"] for row in rows(tmp_path)}
    assert found == {"paft_sync steps=20 period=10": 1, "paft_sync steps=20 period=5": 1, "paft_sync steps=40": 1}


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
    (row,) = rows(tmp_path / identity(one))
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


def test_injections_into_memory_are_counted_under_what_they_struck(tmp_path: Path) -> None:
    common = {"step": 1, "attempt": 0, "fault": "f", "rank": 0, "landed": True, "norm": 3.0, "elements": 900}
    rows = [
        {**common, "site": "parameter", "parameter": None},
        {**common, "site": "optimizer_state", "parameter": "*:exp_avg"},
        {**common, "site": "optimizer_state", "parameter": "a:exp_avg", "bit": 3, "bits_before": "0x3f80",
         "value_before": 1.0, "value_after": 1.5, "norm": None, "elements": None},
    ]  # fmt: skip
    trial = spec(RESNET, steps=10, seed=0, faults=[FAULT], mitigations=[])
    write_trial(tmp_path, trial, grid="g", labels={"mitigation": "ddp"}, drawn=2000, injections=rows)
    found = {(row["by"], row["value"]): row["strikes"] for row in injections_rows(tmp_path)}
    assert (
        found["site", "parameter"] == found["parameter", "(all parameters)"] == found["parameter", "*:exp_avg"] == 900
    )
    assert found["site", "optimizer_state"] == 901 and found["parameter", "a:exp_avg"] == 1


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
        " paftbench.analysis.figures.curves, paftbench.analysis.figures.timeline, paftbench.analysis.figures.degree,"
        " paftbench.analysis.figures.periods, paftbench.analysis.figures.overhead, paftbench.cli.status;"
        "assert not {'torch', 'pandas', 'matplotlib.pyplot'} & set(sys.modules), sorted(sys.modules)"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True)


def test_a_gap_is_kept_apart_by_workload(tmp_path: Path) -> None:
    quickstart(tmp_path / "sweep", steps=20)
    sweep = load(tmp_path / "sweep")
    gpt2 = next(run for run in sweep.selected if run.workload == GPT2["name"] and run.mitigation == "paft_sync")
    assert sweep.golden(gpt2) is not None and sweep.ddp(gpt2) is not None
    assert {run.workload for run in (*sweep.goldens(gpt2), *sweep.limits(gpt2))} == {"gpt2"}


def test_the_core_sweep_reads_well_at_120_columns(tmp_path: Path) -> None:
    core(tmp_path, seeds=3, steps=20, grids=("flips", "noise"))
    head, _, rest = render(tmp_path, width=120).partition("\n\ngrid ")
    second, notes = ("grid " + rest).split("\n\naccuracy: ")
    assert max(map(len, [*head.splitlines(), *second.splitlines()])) <= 120
    cells_of_second = [" ".join(line.split()[:3]) for line in second.splitlines()[2:] if line.strip()]
    order = ("ddp", "paft_sync", "paft_dyn", "averaging_limit")
    assert cells_of_second[0] == "golden golden 3"
    assert cells_of_second[1:] == [
        f"{grid} {mitigation} degree={degree:g}"
        for grid in ("flips", "noise")
        for degree in GRIDS[grid][1]
        for mitigation in order
    ]
    blank = [i for i, line in enumerate(second.splitlines()) if not line.strip()]
    assert len(blank) == 2  # a gap where the grid changes
    for name in ("outcomes", "mean_model", "worst_rank", "rank0", "gap_closed"):
        assert name in head.splitlines()[0]
    for name in ("divergence", "nsr", "nsr max", "strikes", "period", "extra bytes", "overhead"):
        assert name in second.splitlines()[0]
    assert "lowest..highest (median) of those chosen at the synchronisations" in notes


def test_chosen_periods_are_lowest_highest_and_median_of_all_syncs(tmp_path: Path) -> None:
    for seed, periods in enumerate([[10, 2, 3], [10, 4, 4]]):
        own = spec(RESNET, steps=10, seed=seed, faults=[FAULT], mitigations=[DYN])
        mitigation = {"syncs": 3, "periods": periods, "bytes": 0, "collectives": 3, "memory_bytes": 0}
        write_trial(tmp_path, own, grid="noise", labels={"mitigation": "paft_dyn"}, drawn=1, mitigation=mitigation)
    cell(tmp_path, "ddp", [0.9])
    plain, dyn = rows(tmp_path)
    assert dyn["periods"] == {"lowest": 2, "median": 4, "highest": 10} and plain["periods"] is None
    assert "2..10 (4)" in render(tmp_path)


def test_a_mean_over_some_of_the_finished_trials_says_of_how_many(tmp_path: Path) -> None:
    golden(tmp_path, [0.9, 0.92, 0.91, 0.9, 0.9])
    timed = {"time": {"step_median_s": 0.1, "overhead_valid": True}, "nsr": {"median": 0.1, "max": 0.2}}
    cell(tmp_path, "ddp", [0.8, 0.82, 0.81, 0.83, 0.8], trial={"placement": "torchrun"}, **timed)
    assert "(k/n)" not in render(tmp_path, width=200)
    for run in load(tmp_path).selected:
        if run.mitigation == "ddp" and run.seed > 1:
            write_failure(run.record.path, "error", "out of memory", strikes=StrikeCounts(drawn=5))
    _, row = rows(tmp_path)
    assert row["claim"] == "none" and row["seeds"] == row["finished"] == 5
    counts = row["measured"]
    assert (counts["worst_rank"], counts["nsr"]["max"], counts["overhead"], counts["strikes"]["drawn"]) == (2, 2, 2, 5)
    text = render(tmp_path, width=200)
    (line,) = [line for line in text.splitlines() if line.lstrip().startswith("noise")]
    assert "0.810 (2/5)" in line and "0.200 (2/5)" in line and "1.00x (2/5)" in line and "0 B (2/5)" in line
    assert " 5* " in line and " 5 " in line  # strikes are known of all
    assert "(k/n): the mean of k of n finished trials" in text and "fewer than 3 seeds with a number" in text


def test_json_has_every_number_of_every_cell(tmp_path: Path) -> None:
    core(tmp_path, seeds=1, steps=10, grids=("noise",))
    parsed = json.loads(to_json(rows(tmp_path)))
    assert len(parsed) == 17
    for row in parsed:
        assert set(row) >= {
            "grid", "cell", "labels", "trials", "finished", "seeds", "claim", "outcomes", "rates", "metric", "judge",
            "mean_model", "worst_rank", "rank0", "gap_closed", "gap_closed_by_view", "divergence", "nsr", "strikes",
            "periods", "extra_bytes", "overhead", "points", "ranges",
        }  # fmt: skip
    assert parsed[1]["labels"] == {"faults.noise.degree": 0.001, "mitigation": "ddp"}
    assert parsed[1]["nsr"] == {"median": 0.05, "max": 0.3}


def test_a_fixed_period_is_one_number_and_no_period_no_column(tmp_path: Path) -> None:
    quickstart(tmp_path / "sweep", seeds=1, steps=20)
    assert " period " in render(tmp_path / "sweep", width=200)
    golden(tmp_path / "golden", [0.9])
    assert " period " not in render(tmp_path / "golden", width=200)
