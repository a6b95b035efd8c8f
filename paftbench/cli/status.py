"""`paftbench status`: how far a sweep is, and what failed."""

import sys
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Annotated

import typer

from paftbench.cli.options import duration, say
from paftbench.printable import printable
from paftbench.records.outcome import FAILED

if TYPE_CHECKING:
    from paftbench.store.directory import TrialRecord

PAUSE_S = 2.0
PAUSED_S = 60.0  # a sweep in which nothing finished for this long, and ten usual gaps, was not running


def status(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="A sweep directory, or one trial's.")],
    follow: Annotated[
        bool, typer.Option("--follow", help="Look every two seconds until all is done; Ctrl-C ends it.")
    ] = False,
) -> None:
    """Count states and outcomes, the rate and the time left; list failures with their logs."""
    from paftbench.store.directory import read_results

    records = read_results(directory)
    if not follow:
        say(summary(records))
        return
    from rich.live import Live
    from rich.text import Text

    shown = ""
    live = Live(auto_refresh=False, transient=True) if sys.stdout.isatty() else None
    with live or nullcontext():
        while any(record.result is None for record in records):
            text = summary(records)
            if live is not None:  # in place on a terminal, elsewhere one after the other where it has changed
                live.update(Text(printable(text)), refresh=True)
            elif text != shown:
                say(text + "\n")
            shown = text
            time.sleep(PAUSE_S)
            try:
                records = read_results(directory)
            except LookupError:
                # A trial that is run again changes its directory, which is away for a moment.
                if not directory.is_dir():
                    raise
    say(summary(records))


def summary(records: Sequence["TrialRecord"]) -> str:
    """The text of `status`."""
    from paftbench.store.claim import STALE_S, heartbeat_age_s
    from paftbench.store.directory import LOG, is_claimed

    done = [record for record in records if record.result is not None]
    left = len(records) - len(done)
    claimed = [record for record in records if record.result is None and is_claimed(record.path)]
    running = len(claimed)
    lines = [f"{len(records)} trials: {len(done)} done, {running} running, {left - running} missing"]
    odd = [age for record in claimed if abs(age := heartbeat_age_s(record.path)) > STALE_S]
    if odd:
        worst = max(odd, key=abs)
        when = f"{duration(abs(worst))} {'old' if worst > 0 else 'in the future'}"
        lines.append(
            f"heartbeats: {len(odd)} of them {when} by this clock: another machine has another time, or they have "
            f"ended; a sweep that hears nothing for {STALE_S:.0f} s takes them over"
        )
    outcomes = Counter(outcome_of(record) for record in done)
    if outcomes:
        lines.append("outcomes: " + ", ".join(f"{count} {outcome}" for outcome, count in outcomes.most_common()))
    grids = Counter(str(record.planned.grid) for record in records)
    if left and len(grids) > 1:
        finished = Counter(str(record.planned.grid) for record in done)
        lines.append("grids: " + ", ".join(f"{grid} {finished[grid]}/{total}" for grid, total in grids.items()))
    rate = rate_per_s(done)
    if rate is not None:
        eta = f", about {duration(left / rate)} left" if running else ", nothing is running" if left else ""
        lines.append(f"rate: {rate * 60:.1f} trials a minute{eta}")
    for record in done:
        if outcome_of(record) in FAILED:
            reason = str((record.result and record.result.reason) or "").strip().splitlines()
            text = reason[-1] if reason else "no reason recorded"
            lines.append(f"{outcome_of(record)}: {record.planned.name}: {text}; see {record.path / LOG}")
    return "\n".join(lines)


def outcome_of(record: "TrialRecord") -> str:
    return "missing" if record.result is None else record.result.outcome


def rate_per_s(done: Sequence["TrialRecord"]) -> float | None:
    """Finished trials per second since the sweep last started; `None` for fewer than two.

    Trials that run side by side finish side by side: the rate holds for as many processes as there were.
    """
    from paftbench.store.directory import RESULT

    times = sorted((record.path / RESULT).stat().st_mtime for record in done)
    gaps = [later - earlier for earlier, later in pairwise(times)]
    if not gaps:
        return None
    # A gap much longer than is usual is a night in which the sweep stood still, not slowness.
    longest = max(PAUSED_S, 10 * median(gaps))
    start = max((i + 1 for i, gap in enumerate(gaps) if gap > longest), default=0)
    latest = times[start:]
    if len(latest) < 2 or latest[-1] == latest[0]:
        return None
    return (len(latest) - 1) / (latest[-1] - latest[0])
