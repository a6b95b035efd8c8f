"""Committed results, read back: the sweeps under `reference/` as analysis sees them, without their step logs."""

import csv
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from paftbench.analysis.cells import Cell, cells
from paftbench.analysis.runs import Run, Sweep
from paftbench.records.door import parse
from paftbench.records.plan import Data, Plan, TrialFields
from paftbench.records.result import Result
from paftbench.store.directory import TrialRecord
from paftbench.store.files import read_lines, write_json, write_text

ROOT = Path(__file__).resolve().parent.parent / "results" / "reference"


def keep_study(folder: Path, found: dict[str, Any], text: str) -> None:
    """Write a study's numbers and its table, and show the table."""
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "study.json", found)
    write_text(folder / "table.txt", text)
    print(text)


@cache
def sweep_of(name: str) -> Sweep:
    """The trials of `reference/NAME/trials.jsonl`."""
    return sweep_from(name, read_lines(ROOT / name / "trials.jsonl"))


def sweep_from(name: str, lines: Iterable[dict[str, Any]]) -> Sweep:
    """The trials of such lines; older ones leave out judge and tolerance, which were all alike."""
    runs = tuple(_run(name, line) for line in lines)
    return Sweep(directory=ROOT / name, selected=runs, everything=runs)


def _run(name: str, line: dict[str, Any]) -> Run:
    own = {**line["result"], "history": line["result"].get("curve", {}), "environment": {}}
    result, trial = parse(Result, own, name), parse(TrialFields, line["trial"], name)
    planned = Plan(
        id=result.id, name=result.name, experiment=result.experiment, grid=result.grid, labels=result.labels,
        golden_id=result.golden_id, judge=line.get("judge", "worst_rank"), tolerance=line.get("tolerance", 0.02),
        plugins=(), sources={}, data=result.data or Data(name="", sha256=""), trial=trial,
    )  # fmt: skip
    return Run(record=TrialRecord(path=ROOT / name / result.id, planned=planned, result=result))


@cache
def cells_of(name: str) -> tuple[Cell, ...]:
    return tuple(cells(sweep_of(name)))


@cache
def decisions_of(name: str) -> tuple[dict[str, str], ...]:
    """The rows of `decisions.csv`, in the order of trials and steps."""
    with (ROOT / name / "decisions.csv").open(newline="", encoding="utf-8") as file:
        return tuple(csv.DictReader(file))
