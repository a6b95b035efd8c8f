"""What a step costs by section, what synchronisations add to it, and what they may add by DESIGN's bounds.

A step that synchronises every H steps has a cost that the median step does not show: it is spread over the steps.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import median

from paftbench.analysis.runs import Run
from paftbench.records.step import StepRow
from paftbench.store.directory import NOT_OF_THE_STEP

SYNC = "mitigate"


@dataclass(frozen=True, kw_only=True)
class StepCost:
    """Seconds per step over a run; `sections` add up to `seconds`.

    `sync_s`: what a synchronisation adds to its own step; None where the run has none or overlaps them.
    """

    seconds: float
    sections: Mapping[str, float]
    sync_s: float | None


@lru_cache(maxsize=512)
def step_cost(run: Run) -> StepCost | None:
    """The mean over steps of three medians: of steps that synchronise, of those just before them, of all others.

    Medians keep out what the machine did besides; the step before may have to start an overlapped mean. The first step,
    which warms up, is left out, and so is what is not the step's: measuring, evaluating, injecting. None where the log
    has fewer than two steps with times.
    """
    rows = [row for row in run.steps() if row.seconds][1:]
    if not rows:
        return None
    kinds = [_kind(row, following) for row, following in zip(rows, [*rows[1:], None], strict=True)]
    sections = dict.fromkeys(name for row in rows for name in row.seconds or () if name not in NOT_OF_THE_STEP)
    total, parts = 0.0, dict.fromkeys(sections, 0.0)
    for kind in set(kinds):
        own = [row.seconds or {} for row, other in zip(rows, kinds, strict=True) if other == kind]
        weight = len(own) / len(rows)
        total += weight * median(sum(seconds.get(name, 0.0) for name in sections) for seconds in own)
        for name in sections:
            parts[name] += weight * median(seconds.get(name, 0.0) for seconds in own)
    known = sum(parts.values())
    scaled = {name: seconds * total / known for name, seconds in parts.items()} if known else parts
    return StepCost(seconds=total, sections=scaled, sync_s=None if overlaps(run) else _sync_s(rows))


def step_seconds(run: Run) -> float | None:
    """Seconds per step; the median step of result.json where the log of steps is not there."""
    cost = step_cost(run)
    return run.found.time.step_median_s if cost is None else cost.seconds


def period(run: Run) -> float | None:
    """Steps per synchronisation; None for a run without any."""
    syncs = run.found.mitigation.syncs
    steps = run.found.stopped_at or run.trial.steps
    return steps / syncs if syncs else None


def overlaps(run: Run) -> bool:
    return any(mitigation.overlap for mitigation in run.trial.mitigations)


def exposed(rho: float, period: float, overlap: bool) -> float:
    """What synchronising exposes, as a share of a step: rho / H, overlapped at worst max(0, 2 rho - 1) / H.

    `rho` is the time of a synchronisation over that of a step; an overlapped one can hide behind one step's compute and
    the part of the next that it does not need.
    """
    return (max(0.0, 2 * rho - 1) if overlap else rho) / period


def sync_share(runs: Sequence[Run], plain_s: float) -> float | None:
    """rho: the median over blocking runs of a synchronisation's time, over a plain step's; None without any."""
    found = [cost.sync_s for run in runs if (cost := step_cost(run)) is not None and cost.sync_s is not None]
    return median(found) / plain_s if found and plain_s else None


def extra_share(run: Run) -> float | None:
    """Bytes that the mitigation put into collectives, over those of the gradients; None where not counted."""
    extra, gradients = run.found.mitigation.bytes, run.found.gradient_bytes
    return extra / gradients if extra is not None and gradients else None


def _kind(row: StepRow, following: StepRow | None) -> str:
    return "sync" if row.synced else "before" if following is not None and following.synced else "other"


def _sync_s(rows: Sequence[StepRow]) -> float | None:
    with_sync = [(row.seconds or {}).get(SYNC, 0.0) for row in rows if row.synced]
    without = [(row.seconds or {}).get(SYNC, 0.0) for row in rows if not row.synced]
    if not with_sync:
        return None
    return max(0.0, median(with_sync) - (median(without) if without else 0.0))
