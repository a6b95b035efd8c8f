"""Keep a finished sweep's small records: `python tools/keep.py SWEEP_DIR NAME [FIGURE ...]`.

Writes to `reference/NAME` `table.txt`, `trials.jsonl` (what was run, what came out, a line per trial), `decisions.csv`
where a mitigation chose periods, figures, and `about.json` with the command, its seconds and the environment.
`make reference NAME=core/resnet FIGURES=degree` runs the sweep first.
"""

import csv
import io
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from paftbench.analysis.figures import draw
from paftbench.analysis.table import render
from paftbench.environment.machine import difference, machine
from paftbench.records.result import written
from paftbench.store.directory import TrialRecord, read_results
from paftbench.store.files import encode_line, write_json, write_text

ROOT = Path(__file__).resolve().parent.parent / "results" / "reference"
LEFT_OUT = ("history", "environment", "params_sha256")
DECISION = ("step", "rule", "layer", "gradient", "spread", "sigma", "lr", "period_before", "period")


def keep(sweep: Path, name: str, figures: Sequence[str]) -> Path:
    """The folder that now holds the sweep's records; `ValueError` where a trial is missing or ended in error."""
    records = read_results(sweep)
    lines = [line_of(record) for record in records]
    folder = ROOT / name
    folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / "table.txt", render(sweep, width=120).rstrip() + "\n")
    write_text(folder / "trials.jsonl", "".join(lines))
    decisions = _decisions(records)
    if decisions:
        write_text(folder / "decisions.csv", decisions)
    write_json(folder / "about.json", about(f"paftbench run {records[0].planned.experiment}", records))
    for path in draw(sweep, figures, format="png"):
        shutil.copyfile(path, folder / path.name)
    return folder


def line_of(record: TrialRecord) -> str:
    """What was run and what came out of it; `ValueError` where that is nothing or an error."""
    if record.result is None or record.result.outcome == "error":
        raise ValueError(f"{record.planned.name} has no result to keep")
    result = written(record.result)
    small = {key: value for key, value in result.items() if key not in LEFT_OUT}
    planned = record.planned
    own = {"judge": planned.judge, "tolerance": planned.tolerance, "trial": planned.trial.fields}
    return encode_line({**own, "result": small | {"curve": result["history"]}})


def about(command: str, records: Sequence[TrialRecord]) -> dict[str, Any]:
    """Where the records come from: the commits and seconds of all trials together, the environment of the last.

    `ValueError` where they come from several machines: a reader could not tell which row to hold to its bits.
    """
    results = [record.result for record in records if record.result is not None]
    environment = {key: value for key, value in results[-1].environment.fields.items() if key != "argv"}
    for record, result in zip(records, results, strict=True):
        device = record.planned.trial.device
        if says := difference(machine(result.environment.fields, device), machine(environment, device)):
            raise ValueError(f"{record.planned.name} is not known to be of the last trial's machine: {says}")
    return {
        "command": command,
        "trials": len(results),
        "trial_seconds": round(sum(result.time.total_s or 0.0 for result in results), 1),
        "commits": sorted({result.environment.git.sha for result in results if result.environment.git}),
        "environment": environment,
    }


def _decisions(records: Sequence[TrialRecord]) -> str:
    """Every chosen period with the numbers it came from; empty where no mitigation chose one."""
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(("trial", *DECISION))
    empty = len(text.getvalue())
    for record in records:
        for row in record.steps():
            if row.decision:
                values = {"step": row.step, **row.decision.fields}
                rows.writerow((record.planned.name, *(values[key] for key in DECISION)))
    return text.getvalue() if len(text.getvalue()) > empty else ""


if __name__ == "__main__":
    print(keep(Path(sys.argv[1]), sys.argv[2], sys.argv[3:] or ("overview",)))
