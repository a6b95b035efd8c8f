"""What `result.json` says of a finished trial."""

import hashlib
from collections.abc import Iterable, Sequence
from math import isfinite, isnan
from pathlib import Path
from statistics import median

import torch

from paftbench.ranks.replicas import Replicas
from paftbench.records.environment import present
from paftbench.records.outcome import Facts, outcome_of
from paftbench.records.plan import VIEWS, Data
from paftbench.records.result import (
    Course,
    Divergence,
    History,
    Metric,
    Mitigated,
    Result,
    Seeds,
    StrikeCounts,
    Time,
)
from paftbench.records.step import StepRow
from paftbench.step.metrics import all_finite, spread
from paftbench.store.directory import NOT_OF_THE_STEP, Planned, TrialRecord
from paftbench.training.loop import Placement
from paftbench.training.recorder import Recorder


def summary(
    planned: Planned, placement: Placement, recorder: Recorder, directory: Path, golden: Result | None
) -> Result:
    """The record of a finished trial; every process must call it, and the one that hosts rank 0 has the rows."""
    replicas, pipeline, trial = placement.replicas, placement.pipeline, planned.trial
    hashes = [sha for part in replicas.ranks.gather_objects(_hashes(replicas)) for sha in part]
    finite = not replicas.ranks.any([not all_finite(replicas.parameters)])
    final = spread(replicas.parameters, replicas.ranks)
    counts = replicas.ranks.gather_objects(vars(pipeline.injector.counts))
    strikes = StrikeCounts(**{key: sum(part[key] for part in counts) for key in ("drawn", "landed", "changed")})
    rows = list(TrialRecord(path=directory, planned=planned.plan(), result=None).steps())
    history = recorder.history
    finite = finite and bool(rows) and all(isfinite(loss) for loss in rows[-1].loss)
    facts = Facts(
        nonfinite=not finite, judged=history[planned.judge][-1],
        golden=None if golden is None else golden.metric.of(planned.judge), chance=trial.workload.chance,
        untrained=history[planned.judge][0], direction=trial.workload.direction, tolerance=planned.tolerance,
    )  # fmt: skip
    traffic = replicas.ranks.traffic
    return Result(
        id=planned.id,
        name=planned.name,
        experiment=planned.experiment,
        grid=planned.grid,
        labels=planned.labels,
        outcome=outcome_of(facts),
        bitwise_identical=None if golden is None else tuple(hashes) == golden.params_sha256,
        golden_id=planned.golden_id,
        metric=Metric(
            name=trial.workload.metric, direction=trial.workload.direction, chance=trial.workload.chance,
            untrained=facts.untrained, examples=trial.workload.examples(),
            **{view: history[view][-1] for view in VIEWS},
        ),
        stopped_at=rows[-1].step + 1 if rows and rows[-1].step + 1 < trial.steps else None,
        history=History(**{key: tuple(values) for key, values in history.items()}),  # type: ignore[arg-type]
        divergence=_divergence(rows, final),
        inconsistency=_course([row.inconsistency for row in rows]),
        nsr=_course([row.nsr for row in rows]),
        strikes=strikes,
        mitigation=Mitigated(
            syncs=pipeline.syncs, periods=tuple(pipeline.periods), bytes=pipeline.extra_bytes,
            collectives=pipeline.extra_collectives,
            memory_bytes=sum(m.memory_bytes(replicas.layout) for m in trial.mitigations),
        ),
        gradient_bytes=traffic.bytes - pipeline.extra_bytes,
        time=_time(rows, planned),
        params_sha256=tuple(hashes),
        seeds=Seeds(seed=trial.seed, fault_seed=trial.faults_seed),
        data=Data(name=planned.data.name, sha256=planned.data.sha256),
        parameters=replicas.layout.size,
        environment=present(),
    )  # fmt: skip


def _hashes(replicas: Replicas) -> list[str]:
    """SHA-256 of each hosted rank's parameters, in registration order, as they lie in memory."""
    digests = []
    for row in range(len(replicas.ranks.local)):
        digest = hashlib.sha256()
        for block in replicas.parameters:
            digest.update(block[row].contiguous().cpu().view(-1).view(torch.uint8).numpy().tobytes())
        digests.append(digest.hexdigest())
    return digests


def _divergence(rows: Sequence[StepRow], final: float) -> Divergence:
    before = _known(row.divergence_before for row in rows)
    every = [*_known(row.divergence for row in rows), *before, final]
    return Divergence(final=final, max=_top(every), before_sync=_middle(before))


def _course(values: Iterable[float | None]) -> Course:
    known = _known(values)
    return Course(median=_middle(known), max=_top(known))


def _known(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def _middle(values: list[float]) -> float | None:
    """The median, NaN counting as larger than any number: it compares with none, and would break the order."""
    ordered = _ordered(values)
    return (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2 if ordered else None


def _top(values: list[float]) -> float | None:
    """The largest; NaN where there is one."""
    return _ordered(values)[-1] if values else None


def _ordered(values: list[float]) -> list[float]:
    return sorted(values, key=lambda value: (isnan(value), value))


def _time(rows: Sequence[StepRow], planned: Planned) -> Time:
    """Seconds of a step without measuring, evaluating and injecting; the first step, which warms up, is left out."""
    timed = [row.seconds or {} for row in rows]
    steps = [sum(s for name, s in seconds.items() if name not in NOT_OF_THE_STEP) for seconds in timed]
    sections: dict[str, float] = {}
    for own in timed:
        for name, seconds in own.items():
            sections[name] = sections.get(name, 0.0) + seconds
    trial = planned.trial
    return Time(
        step_median_s=median(steps[1:] or steps),
        step_max_s=max(sum(seconds.values()) for seconds in timed),
        total_s=sum(sections.values()),
        overhead_valid=trial.placement == "torchrun" and trial.processes == trial.world_size and not trial.exact,
        sections=sections,
    )
