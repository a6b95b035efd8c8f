"""What a change moved in the committed results: `python tools/moved.py REVISION [NAME ...]`.

Holds each `reference/NAME/trials.jsonl` against the one that git has at REVISION, cell by cell: the mean over seeds of
the judged metric, and the outcomes. A line per experiment with its largest move, then a line per cell that moved by
more than its tolerance or ended in other outcomes.
"""

import json
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

from kept import ROOT, sweep_from, sweep_of

from paftbench.analysis.cells import Cell, cells
from paftbench.analysis.quality import quality
from paftbench.analysis.runs import Sweep
from paftbench.analysis.stats import mean_of
from paftbench.analysis.text import counted, draw, number

WIDTH = 120


def then(revision: str, name: str) -> Sweep | None:
    """The sweep as a revision has it; None where it has none."""
    path = (ROOT / name / "trials.jsonl").relative_to(ROOT.parent.parent)
    shown = subprocess.run(["git", "show", f"{revision}:{path}"], cwd=ROOT, capture_output=True, text=True)
    return sweep_from(name, map(json.loads, shown.stdout.splitlines())) if shown.returncode == 0 else None


def pairs(name: str, before: Sweep) -> Iterable[tuple[str, tuple[Sweep, Cell], tuple[Sweep, Cell]]]:
    """Cells of one name in both."""
    now = sweep_of(name)
    known = {(cell.grid, cell.text): cell for cell in cells(before)}
    for cell in cells(now):
        if (cell.grid, cell.text) in known:
            yield f"{cell.grid} {cell.text}", (before, known[cell.grid, cell.text]), (now, cell)


def mean(sweep: Sweep, cell: Cell) -> float | None:
    """The judged metric over the finished runs."""
    return mean_of([quality(sweep, run, run.judge) for run in cell.done])


def moved(revision: str, names: Iterable[str]) -> str:
    """The two tables."""
    whole: dict[str, list[str]] = {
        key: [] for key in ("experiment", "cells", "moved", "other outcomes", "largest move")
    }
    rows: dict[str, list[str]] = {key: [] for key in ("cell", "was", "is", "outcomes were", "outcomes are")}
    for name in names:
        before = then(revision, name)
        if before is None:
            continue
        found: list[tuple[float, str]] = []
        count = far = others = 0
        for title, (old_sweep, old), (new_sweep, new) in pairs(name, before):
            was, now = mean(old_sweep, old), mean(new_sweep, new)
            by = 0.0 if was is None or now is None else abs(now - was)
            other = old.outcomes() != new.outcomes()
            count, others, far = count + 1, others + other, far + (by > new.runs[0].planned.tolerance)
            found.append((by, title))
            if other or by > new.runs[0].planned.tolerance:
                outcomes = (counted(old.outcomes()), counted(new.outcomes()))
                for key, text in zip(rows, (f"{name}: {title}", number(was), number(now), *outcomes), strict=True):
                    rows[key].append(text)
        most = max(found, default=(0.0, "-"))
        for key, text in zip(
            whole, (name, str(count), str(far), str(others), f"{number(most[0])} {most[1]}"), strict=True
        ):
            whole[key].append(text)
    tables = [
        draw(
            table, sections=[""] * len(next(iter(table.values()))), width=WIDTH, left=list(table)[:1] + list(table)[-1:]
        )
        for table in (whole, rows)
    ]
    return "\n".join(tables)


def main(arguments: list[Any]) -> None:
    names = arguments[1:] or [str(path.parent.relative_to(ROOT)) for path in sorted(ROOT.rglob("trials.jsonl"))]
    print(moved(arguments[0], names))


if __name__ == "__main__":
    main(sys.argv[1:])
