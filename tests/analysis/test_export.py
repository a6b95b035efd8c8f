"""`paftbench export`: what other tools read says the same as the records, numbers that are none included."""

import csv
import json
import sys
from functools import partial
from math import inf, isnan, nan
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from support.synthetic_results import FAULT, RESNET, golden, quickstart, spec, steps_rows, write_trial

import paftbench
from paftbench.analysis.export import export
from paftbench.cli.main import exit_code

LOSSES = ([1.0, nan], [2.0, inf], [-inf, -inf], [0.1 + 0.2, 1.0])


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return quickstart(tmp_path_factory.mktemp("export") / "sweep", seeds=2, steps=20)


@pytest.fixture
def odd(tmp_path: Path) -> Path:
    """One trial whose numbers are NaN, infinite, and not measured, and whose label is a CSV's worst."""
    trial = spec(RESNET, steps=4, seed=0, faults=[FAULT], mitigations=[])
    rows = steps_rows(trial, [0.1, 0.2, nan, inf], [None, 0.25, None, None], lambda step: 7)
    rows = [{**row, "loss": loss, "period": None} for row, loss in zip(rows, LOSSES, strict=True)]
    labels = {"mitigation": "ddp", "how": 'a "quoted", broken\nlabel é'}
    directory = tmp_path / "odd"
    write_trial(directory, trial, grid="noise", labels=labels, rows=rows, drawn=1, metric=(nan, -inf, None),
                outcome="crashed", mitigation={"syncs": 2, "periods": [10, 5], "bytes": 8},
                nsr={"median": nan, "max": -inf})  # fmt: skip
    return directory


def paftbench_export(*arguments: Any) -> int:
    return exit_code(["export", *(str(argument) for argument in arguments)])


@pytest.mark.parametrize("suffix", ["csv", "json", "parquet"])
@pytest.mark.parametrize("steps", [False, True])
def test_pandas_reads_back_what_load_results_shows(sweep: Path, tmp_path: Path, suffix: str, steps: bool) -> None:
    to = exported(sweep, tmp_path / f"x.{suffix}", steps=steps)
    frame = paftbench.load_results(sweep)
    expected = frame.steps() if steps else frame.drop(columns="path")
    reader = {"csv": pd.read_csv, "json": partial(pd.read_json, precise_float=True), "parquet": pd.read_parquet}
    read = reader[suffix](to)
    assert [*read] == [*expected] and len(read) == len(expected)
    for name in expected.select_dtypes("number"):
        assert np.array_equal(read[name].astype(float), expected[name].astype(float), equal_nan=True), name
    assert read.id.tolist() == expected.id.tolist() and read.name.tolist() == expected.name.tolist()


def exported(directory: Path, to: Path, *, steps: bool = False) -> Path:
    if to.suffix == ".parquet":
        pytest.importorskip("pyarrow", reason="parquet needs the extra `parquet`")
    return export(directory, to, steps=steps)


def test_csv_tells_not_measured_from_nan_and_keeps_every_digit(odd: Path, tmp_path: Path) -> None:
    with exported(odd, tmp_path / "x.csv").open(newline="", encoding="utf-8") as file:
        (row,) = csv.DictReader(file)
    assert (row["nsr_median"], row["nsr_max"], row["inconsistency_max"]) == ("nan", "-inf", "")
    assert row["how"] == 'a "quoted", broken\nlabel é' and json.loads(row["periods"]) == [10, 5]
    with exported(odd, tmp_path / "s.csv", steps=True).open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [row["loss_worst"] for row in rows] == ["nan", "inf", "-inf", "1.0"]
    assert float(rows[3]["loss_rank0"]) == 0.1 + 0.2 and rows[0]["divergence_before"] == rows[0]["period"] == ""
    assert [row["synced"] for row in rows] == ["False", "True", "False", "False"]


def test_json_uses_the_words_of_the_records(odd: Path, tmp_path: Path) -> None:
    (row,) = json.loads(exported(odd, tmp_path / "x.json").read_text(encoding="utf-8"))
    assert (row["nsr_median"], row["nsr_max"], row["inconsistency_max"]) == ("nan", "-inf", None)
    assert row["periods"] == [10, 5] and row["how"].endswith("label é")
    rows = json.loads(exported(odd, tmp_path / "s.json", steps=True).read_text(encoding="utf-8"))
    assert [row["loss_worst"] for row in rows] == ["nan", "inf", "-inf", 1.0] and len({tuple(row) for row in rows}) == 1
    assert np.array_equal(pd.read_json(tmp_path / "s.json").loss_worst, [nan, inf, -inf, 1.0], equal_nan=True)


def test_parquet_keeps_nan_apart_from_null(odd: Path, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="parquet needs the extra `parquet`")
    (row,) = parquet.read_table(exported(odd, tmp_path / "x.parquet")).to_pylist()
    assert isnan(row["nsr_median"]) and row["nsr_max"] == -inf and row["inconsistency_max"] is None
    assert row["periods"] == [10, 5] and row["overhead"] is None and row["exact"] is False
    table = parquet.read_table(exported(odd, tmp_path / "s.parquet", steps=True))
    assert str(table.schema.field("loss_worst").type) == "double" and table["loss_worst"].to_pylist()[1:] == [
        inf, -inf, 1.0,
    ]  # fmt: skip
    assert table["divergence_before"].to_pylist() == [None, 0.25, None, None]


def test_an_axis_of_numbers_and_words_is_text_in_parquet(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="parquet needs the extra `parquet`")
    for seed, value in enumerate((1, "off", 0.5)):
        trial = spec(RESNET, steps=4, seed=seed, faults=[], mitigations=[])
        write_trial(tmp_path, trial, grid="g", labels={"limit": value})
    found = parquet.read_table(exported(tmp_path, tmp_path / "x.parquet"))["limit"].to_pylist()
    assert {*found} == {"1", "off", "0.5"}


def test_the_command_prints_the_path_and_takes_any_case(sweep: Path, tmp_path: Path, capsys: Any) -> None:
    to = tmp_path / "trials.CSV"
    assert paftbench_export(sweep, "--to", to) == 0
    assert capsys.readouterr().out == f"{to}\n" and len(pd.read_csv(to)) == 36
    assert paftbench_export(sweep, "--to", to, "--steps") == 0
    assert len(pd.read_csv(to)) > 500


def test_one_trial_directory_is_exported_alone(sweep: Path, tmp_path: Path) -> None:
    id = paftbench.load_results(sweep).id[5]
    assert pd.read_csv(export(sweep / id, tmp_path / "x.csv")).id.tolist() == [id]


def test_parquet_without_pyarrow_says_what_to_install(
    sweep: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    assert paftbench_export(sweep, "--to", tmp_path / "x.parquet") == 2
    assert "pip install 'paftbench[parquet]'" in one_line_error(capsys)


def one_line_error(capsys: Any) -> str:
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("paftbench: error: ") and err.count("\n") == 1
    return str(err)


@pytest.mark.parametrize(
    ("to", "expected"),
    [
        ("x.xlsx", "must end in one of .csv, .json, .parquet"),
        ("x", "must end in one of"),
        ("nowhere/x.csv", "nowhere is not a directory"),
        ("folder.csv", "folder.csv is a directory"),
    ],
)
def test_a_file_that_cannot_be_written_is_one_line(
    sweep: Path, tmp_path: Path, to: str, expected: str, capsys: Any
) -> None:
    (tmp_path / "folder.csv").mkdir()
    assert paftbench_export(sweep, "--to", tmp_path / to) == 2
    assert expected in one_line_error(capsys)
    assert [path.name for path in tmp_path.iterdir()] == ["folder.csv"]


def test_a_directory_that_cannot_be_read_is_one_line(tmp_path: Path, capsys: Any) -> None:
    to = tmp_path / "x.csv"
    assert paftbench_export(tmp_path / "nowhere", "--to", to) == 2
    assert "nowhere is not a directory of results" in one_line_error(capsys)
    golden(tmp_path / "other", [0.9], schema=2)
    assert paftbench_export(tmp_path / "other", "--to", to) == 2
    assert "schema 2" in one_line_error(capsys)
    golden(tmp_path / "stepless", [0.9])
    assert paftbench_export(tmp_path / "stepless", "--to", to, "--steps") == 2
    assert "no step is recorded" in one_line_error(capsys)
    assert not to.exists()


def test_a_failed_export_leaves_the_old_file(
    odd: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    to = tmp_path / "x.csv"
    to.write_text("old")

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(csv.DictWriter, "writerows", full)
    assert paftbench_export(odd, "--to", to) == 2
    assert "No space left" in one_line_error(capsys)
    assert to.read_text() == "old" and {path.name for path in tmp_path.iterdir()} == {"odd", "x.csv"}
