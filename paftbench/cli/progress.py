"""Progress of a sweep: a live table on a terminal, one line per finished trial elsewhere."""

import sys
import time
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from statistics import mean
from typing import TYPE_CHECKING, Any

from paftbench.cli.options import duration, message
from paftbench.printable import printable
from paftbench.records.outcome import FAILED

if TYPE_CHECKING:
    from rich.table import Table

    from paftbench.store.directory import Planned
    from paftbench.sweep.sweep import Finished

MOST_GRIDS = 12


@dataclass(kw_only=True)
class Tally:
    """A grid: how many of its trials are done, those from before included, and what the ones of this sweep took."""

    total: int
    done: int
    outcomes: Counter[str] = field(default_factory=Counter)
    slot_seconds: list[float] = field(default_factory=list)


class Progress:
    """Counts finished trials; a context manager around the sweep.

    `to_run` has the ids of the planned trials that this sweep runs, `slots` is how many processes run at a time.
    """

    def __init__(self, planned: Sequence["Planned"], to_run: Collection[str], slots: int) -> None:
        self._to_run = len(to_run)
        self._slots = slots
        self._finished = 0
        self._by: Counter[str] = Counter()
        self._last = ""
        self._begin = time.monotonic()
        self._live: Any = None
        grids = Counter(item.grid for item in planned)
        left = Counter(item.grid for item in planned if item.id in to_run)
        self._tallies = {grid: Tally(total=total, done=total - left[grid]) for grid, total in grids.items()}

    def __enter__(self) -> "Progress":
        if self._to_run and sys.stderr.isatty():
            from rich.console import Console
            from rich.live import Live

            console = Console(stderr=True)
            self._live = Live(get_renderable=self.table, console=console, refresh_per_second=2, transient=True)
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()
        if self._finished:
            message(self._told(time.monotonic() - self._begin))

    def tell(self, finished: "Finished") -> None:
        """One trial has ended."""
        self._finished += 1
        self._by[finished.by] += 1
        tally = self._tallies[finished.planned.grid]
        tally.done += 1
        tally.outcomes[finished.outcome] += 1
        if finished.by == "this":
            tally.slot_seconds.append(finished.seconds * min(finished.planned.trial.processes, self._slots))
        took = {"this": f"{finished.seconds:6.1f} s", "other": " (other)", "none": "       -"}[finished.by]
        self._last = f"{finished.outcome:<15} {took}  {finished.planned.name}"
        line = self._last
        if finished.outcome in FAILED:
            last = (finished.reason or "").strip().splitlines()
            line += f": {last[-1] if last else '?'}; see {finished.log}"
        if self._live is None:
            message(f"[{self._finished}/{self._to_run}] {line}")
        elif finished.outcome in FAILED:
            self._live.console.print(printable(line), highlight=False, markup=False, soft_wrap=True)

    def seconds_left(self) -> float | None:
        """What the rest takes: of each grid what its finished trials took on average, else those of all grids.

        A trial that has started counts as one that has not. None before the first has finished.
        """
        known = [seconds for tally in self._tallies.values() for seconds in tally.slot_seconds]
        if not known:
            return None
        rest = ((tally.total - tally.done) * mean(tally.slot_seconds or known) for tally in self._tallies.values())
        return sum(rest) / self._slots

    def table(self) -> "Table":
        """What is shown now: a bar for each grid, counts and time for all."""
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        table = Table.grid(padding=(0, 2, 0, 0))
        shown = list(self._tallies.items())
        if len(shown) > MOST_GRIDS:
            shown = [(grid, tally) for grid, tally in shown if tally.done < tally.total][:MOST_GRIDS]
        for grid, tally in shown:
            bar = ProgressBar(total=tally.total, completed=tally.done, width=24)
            outcomes = ", ".join(f"{count} {outcome}" for outcome, count in tally.outcomes.most_common())
            table.add_row(Text(grid), bar, f"{tally.done}/{tally.total}", Text(outcomes))
        whole = Table.grid()
        whole.add_row(table)
        whole.add_row(Text(self._summary()))
        if self._last:
            whole.add_row(Text(f"last: {printable(self._last)}", overflow="ellipsis", no_wrap=True))
        return whole

    def _told(self, elapsed: float, what: str = "trials run") -> str:
        """What this sweep ran; beside it, and not counted in it, what another did, and what could not run."""
        text = f"{self._by['this']} of {self._to_run} {what} in {duration(elapsed)}"
        text += f", {self._by['other']} by another sweep" if self._by["other"] else ""
        return text + (f", {self._by['none']} not run" if self._by["none"] else "")

    def _summary(self) -> str:
        elapsed = time.monotonic() - self._begin
        text = self._told(elapsed, "run")
        left = self.seconds_left()
        if left is not None:
            text += f", {60 * self._finished / max(elapsed, 1e-9):.1f} a minute, about {duration(left)} left"
        return text
