"""Keep a finished sweep's small records under results/reference: `python results/keep.py SWEEP_DIR NAME`.

Writes `table.txt`, `trials.json` (what was run, what came out, without series), figures, and `about.json` with the
command, its seconds and the environment. `make reference NAME=reference/stale_shard` runs the sweep first.
"""

import shutil
import sys
from pathlib import Path
from typing import Any

from paftbench.analysis.figures import draw
from paftbench.analysis.table import render
from paftbench.files import write_json, write_text
from paftbench.store import read_results

ROOT = Path(__file__).resolve().parent / "reference"
FIGURES = ("overview",)
LEFT_OUT = ("history", "environment", "params_sha256")


def keep(sweep: Path, name: str) -> Path:
    """The folder that now holds the sweep's records; `ValueError` where a trial is missing or ended in error."""
    records = read_results(sweep)
    for record in records:
        if record.result is None or record.result["outcome"] == "error":
            raise ValueError(f"{record.planned['name']} has no result to keep")
    folder = ROOT / name
    folder.mkdir(parents=True, exist_ok=True)
    results = [record.result or {} for record in records]
    trials = [
        {"trial": record.planned["trial"], "result": _small(result)}
        for record, result in zip(records, results, strict=True)
    ]
    environment = dict(results[0]["environment"])
    environment.pop("argv", None)
    write_text(folder / "table.txt", render(sweep, width=120).rstrip() + "\n")
    write_json(folder / "trials.json", {"trials": trials})
    write_json(
        folder / "about.json",
        {
            "command": f"paftbench run {records[0].planned['experiment']}",
            "trial_seconds": round(sum(result["time"]["total_s"] for result in results), 1),
            "environment": environment,
        },
    )
    for path in draw(sweep, FIGURES, format="png"):
        shutil.copyfile(path, folder / path.name)
    return folder


def _small(result: dict[str, Any]) -> dict[str, Any]:
    small = {key: value for key, value in result.items() if key not in LEFT_OUT}
    small["curve"] = result["history"]
    return small


if __name__ == "__main__":
    print(keep(Path(sys.argv[1]), sys.argv[2]))
