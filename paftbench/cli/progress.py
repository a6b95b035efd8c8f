"""Progress of a sweep: a live bar on a terminal, one line per finished trial elsewhere."""

import sys
from typing import Any

from paftbench.cli.options import message
from paftbench.sweep import Finished


class Progress:
    """Counts finished trials; a context manager around the sweep."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._done = 0
        self._bar: Any = None
        self._task: Any = None

    def __enter__(self) -> "Progress":
        if self._total and sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
            from rich.progress import Progress as Bar

            left = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
            self._bar = Bar(*left, TimeElapsedColumn(), TimeRemainingColumn(), console=Console(stderr=True))
            self._task = self._bar.add_task("trials", total=self._total)
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def tell(self, finished: Finished) -> None:
        """One trial has ended."""
        self._done += 1
        line = f"{finished.outcome:<15} {finished.seconds:6.1f} s  {finished.planned.name}"
        if finished.outcome in ("error", "crashed", "hung"):
            last = (finished.reason or "").strip().splitlines()
            line += f": {last[-1] if last else '?'}; see {finished.log}"
        if self._bar is None:
            message(f"[{self._done}/{self._total}] {line}")
            return
        if finished.outcome in ("error", "crashed", "hung"):
            self._bar.console.print(line, highlight=False, markup=False)
        self._bar.update(self._task, completed=self._done)
