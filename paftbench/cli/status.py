"""`paftbench status`: how far a sweep is, and what failed."""

import time
from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from paftbench.store import LOG, RESULT, TrialRecord, is_claimed, read_results

FAILED = ("error", "crashed", "hung")
PAUSE_S = 2.0


def status(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="A sweep directory, or one trial's.")],
    follow: Annotated[bool, typer.Option("--follow", help="Again every two seconds until all is done.")] = False,
) -> None:
    """Count states and outcomes, the rate and the time left; list failures with their logs."""
    while True:
        records = read_results(directory)
        typer.echo(summary(records))
        if not follow or all(record.result is not None for record in records):
            return
        time.sleep(PAUSE_S)
        typer.echo()


def summary(records: list[TrialRecord]) -> str:
    """The text of `status`."""
    done = [record for record in records if record.result is not None]
    left = len(records) - len(done)
    running = sum(is_claimed(record.path) for record in records if record.result is None)
    lines = [f"{len(records)} trials: {len(done)} done, {running} running, {left - running} missing"]
    outcomes = Counter(outcome_of(record) for record in done)
    if outcomes:
        lines.append("outcomes: " + ", ".join(f"{count} {outcome}" for outcome, count in outcomes.most_common()))
    rate = rate_per_s(done)
    if rate is not None:
        eta = f", about {duration(left / rate)} left" if left else ""
        lines.append(f"rate: {rate * 60:.1f} trials a minute{eta}")
    for record in done:
        if outcome_of(record) in FAILED:
            reason = str((record.result or {}).get("reason") or "").strip().splitlines()
            text = reason[-1] if reason else "no reason recorded"
            lines.append(f"{outcome_of(record)}: {record.planned['name']}: {text}; see {record.path / LOG}")
    return "\n".join(lines)


def outcome_of(record: TrialRecord) -> str:
    return str((record.result or {}).get("outcome"))


def rate_per_s(done: list[TrialRecord]) -> float | None:
    """Finished trials per second between the first and the last; `None` for fewer than two."""
    times = sorted((record.path / RESULT).stat().st_mtime for record in done)
    if len(times) < 2 or times[-1] == times[0]:
        return None
    return (len(times) - 1) / (times[-1] - times[0])


def duration(seconds: float) -> str:
    """Seconds as people say them."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
