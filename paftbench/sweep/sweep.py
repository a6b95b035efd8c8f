"""Running a sweep: which trials, in what order, each by one process of one sweep; the engine only places them."""

import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from paftbench.errors import Refused
from paftbench.records.result import Result
from paftbench.store.directory import (
    FAILURE,
    FULL,
    LOG,
    RESULT,
    TRIAL,
    HeldTrial,
    Planned,
    find_trials,
    read_record,
    read_result,
    try_claim,
    write_failure,
)
from paftbench.store.files import drop_temporaries, sync, write_json
from paftbench.store.lease import LostClaim
from paftbench.store.plans import TrialState, adopt, known_record, rerun_directory, settle, state_of, tidy, write_plan
from paftbench.sweep.engines.engine import Ending, Engine
from paftbench.sweep.interrupt import deferred
from paftbench.sweep.postmortem import DISK_FULL, Overdue, postmortem_of
from paftbench.sweep.watch import Watch

POLL_S = 0.03
By = Literal["this", "other", "none"]


@dataclass(frozen=True, kw_only=True)
class Policy:
    """Which finished trials run again, and whether the first error ends the sweep."""

    force: bool = False
    retry_errors: bool = False
    rerun_stale: bool = False
    stop_at_error: bool = False

    def runs(self, state: TrialState) -> bool:
        again = {"done": self.force, "stale": self.rerun_stale, "error": self.retry_errors, "missing": True}
        return self.force or again[state]


@dataclass(frozen=True, kw_only=True)
class Finished:
    """A trial that ended in this sweep (`by` "this"), beside it in another, or was not run for want of a golden run."""

    planned: Planned
    outcome: str
    reason: str | None
    seconds: float
    log: Path
    by: By = "this"


@dataclass(kw_only=True)
class _Launched:
    planned: Planned
    directory: Path
    claim: HeldTrial
    watch: Watch
    rerun: bool


@dataclass(kw_only=True)
class Execution:
    """One pass over planned trials, golden runs first in the list."""

    root: Path
    planned: Sequence[Planned]
    engine: Engine
    policy: Policy = field(default_factory=Policy)
    report: Callable[[Finished], None] = lambda finished: None
    states: dict[str, TrialState] = field(default_factory=dict, init=False)
    errors: dict[str, Finished] = field(default_factory=dict, init=False)

    def prepare(self) -> int:
        """Check that the engine can place every trial, write the plans, warm the engine; how many trials are to run.

        `states` is what was found of each trial; `errors` are those that ended in error, brought up to date by `run`.
        Nothing is written before everything that is there has been read.
        """
        for item in self.planned:
            if item.trial.nodes > self.engine.nodes:
                raise Refused(f"{item.name}: nodes {item.trial.nodes} needs an engine of more than this machine")
        with deferred():
            tidy(self.root)
            self._seen = {item.id: _stamp(self.root / item.id) for item in self.planned}
            records = {item.id: known_record(self.root / item.id, item) for item in self.planned}
            for other in find_trials(self.root) if self.root.is_dir() else []:
                if other.name not in records:
                    read_record(other)  # the table at the end would stumble over it
            for item in self.planned:
                write_plan(self.root / item.id, item, records[item.id])
        self.states = {item.id: state_of(records[item.id], item) for item in self.planned}
        for item in self.planned:
            record = records[item.id]
            if record is not None and record.result is not None:
                self._note(self._finished(item, record.result, 0.0))
        todo = [item for item in self.planned if self.policy.runs(self.states[item.id])]
        self._pending = {item.id: item for item in sorted(todo, key=_turn)}
        virtual = [item for item in todo if item.trial.placement == "virtual"]
        self.engine.expect(module for item in virtual for module in item.trial.workload.imports)
        if virtual:
            self.engine.warm()
        return len(self._pending)

    def run(self) -> None:
        """Run what is to run; on the way out, also by Ctrl-C, trials are stopped and claims given free."""
        if not self.states:
            self.prepare()
        self._running: dict[Path, _Launched] = {}
        self._stopping = False
        with deferred() as interrupted:
            try:
                while not interrupted() and not self._stopping and (self._running or self._pending):
                    self._start()
                    self._collect()
                    time.sleep(POLL_S)
            finally:
                self._stop()

    def _start(self) -> None:
        if not self.engine.fits(1):
            return
        waiting = {*self._pending, *(run.planned.id for run in self._running.values())}
        for item in list(self._pending.values()):
            if not self.engine.fits(item.trial.processes):
                return
            if item.golden_id in waiting:
                continue
            claim = try_claim(self.root / item.id)
            if claim is None:
                continue
            try:
                if claim.taken_over:
                    settle(self.root / item.id)
                del self._pending[item.id]
                if _stamp(self.root / item.id) not in (None, self._seen[item.id]):
                    # Another sweep has run it since this one looked.
                    claim.release()
                    waiting.discard(item.id)
                    self._tell(item, 0.0, "other")
                else:
                    self._launch(item, claim)
            except BaseException:
                claim.release()
                raise

    def _launch(self, item: Planned, claim: HeldTrial) -> None:
        directory = self.root / item.id
        golden = self.root / (item.golden_id or "")
        result = read_result(golden) if item.golden_id and (golden / RESULT).exists() else None
        if result is not None and result.metric.of(item.judge) is None:
            self._leave_unjudged(item, claim, result)
            return
        rerun = self._seen[item.id] is not None
        if rerun:
            directory = rerun_directory(directory, claim.lease.token)
        if not (directory / TRIAL).is_file():
            write_plan(directory, item, None)
        sync(directory / TRIAL)
        drop_temporaries(directory)
        (directory / FAILURE).unlink(missing_ok=True)
        full = {"part": DISK_FULL, "reason": "no room to write why the trial ended"}
        write_json(directory / FULL, full, durable=False)
        watch = Watch(directory, item.trial.timeout_s, None if result is None else result.time)
        setting, torchrun = claim.lease.setting(directory), item.trial.placement == "torchrun"
        self.engine.start(directory, item.trial.processes, torchrun=torchrun, setting=setting)
        self._running[directory] = _Launched(planned=item, directory=directory, claim=claim, watch=watch, rerun=rerun)

    def _leave_unjudged(self, item: Planned, claim: HeldTrial, golden: Result) -> None:
        """A trial that nothing can be compared with: an error, so that --retry-errors runs it after its golden run."""
        if self._seen[item.id] is None:
            reason = f"not run: its golden run {golden.name} ended in {golden.outcome}, nothing to judge it by"
            write_plan(self.root / item.id, item, None)
            write_failure(self.root / item.id, "error", reason)
        claim.release()
        self._tell(item, 0.0, "none")

    def _collect(self) -> None:
        for directory, ending in self.engine.ended():
            self._end(self._running[directory], ending)
        for run in list(self._running.values()):
            overdue = run.watch.overdue()
            if overdue is not None or run.claim.lost:
                self.engine.stop([run.directory])
            if run.claim.lost:
                self._lose(run)
            elif overdue is not None:
                self._end(run, overdue)

    def _end(self, run: _Launched, ending: Ending | Overdue) -> None:
        """What a trial that has ended came to; nothing where it was another sweep's by then."""
        try:
            run.claim.lease.check()
            if not (run.directory / RESULT).is_file():
                found = postmortem_of(run.directory, ending, run.watch.before)
                drop_temporaries(run.directory)
                write_failure(
                    run.directory, found.outcome, found.reason, strikes=found.strikes, total_s=run.watch.elapsed_s,
                    check=run.claim.lease.check,
                )  # fmt: skip
            (run.directory / FULL).unlink(missing_ok=True)
            if run.rerun:
                run.claim.lease.check()
                adopt(run.directory, self.root / run.planned.id)
        except (LostClaim, FileNotFoundError):
            # A directory that is away is one that the other has cleared away.
            if run.claim.lease.held():
                raise
            self._lose(run)
            return
        del self._running[run.directory]
        run.claim.release()
        self._tell(run.planned, run.watch.elapsed_s)

    def _lose(self, run: _Launched) -> None:
        """Another sweep has taken the trial over: it is waited for, as if it had never been started here."""
        del self._running[run.directory]
        if run.rerun:
            shutil.rmtree(run.directory, ignore_errors=True)
        run.claim.release()
        self._pending[run.planned.id] = run.planned

    def _stop(self) -> None:
        """End what still runs; a re-run that has just finished counts, an unfinished one leaves nothing."""
        self.engine.stop(list(self._running))
        for run in self._running.values():
            if run.rerun and (run.directory / RESULT).is_file() and run.claim.lease.held():
                adopt(run.directory, self.root / run.planned.id)
            elif run.rerun:
                shutil.rmtree(run.directory, ignore_errors=True)
            elif run.claim.lease.held():
                (run.directory / FULL).unlink(missing_ok=True)
            run.claim.release()

    def _tell(self, item: Planned, seconds: float, by: By = "this") -> None:
        finished = self._finished(item, read_result(self.root / item.id), seconds, by)
        self._note(finished)
        self._stopping |= finished.outcome == "error" and self.policy.stop_at_error
        self.report(finished)

    def _finished(self, item: Planned, result: Result, seconds: float, by: By = "this") -> Finished:
        log = self.root / item.id / LOG
        return Finished(
            planned=item, outcome=result.outcome, reason=result.reason, seconds=seconds, log=log, by=by
        )  # fmt: skip

    def _note(self, finished: Finished) -> None:
        self.errors.pop(finished.planned.id, None)
        if finished.outcome == "error":
            self.errors[finished.planned.id] = finished


def _turn(item: Planned) -> int:
    """Trials that are timed take turns: those of a seed one after the other, so that a slower hour slows them all."""
    return item.trial.seed if item.trial.placement == "torchrun" else -1


def _stamp(directory: Path) -> tuple[int, int] | None:
    """Tells one result of a trial from the next; `None` while there is none."""
    try:
        stat = (directory / RESULT).stat()
    except FileNotFoundError:
        return None
    return stat.st_ino, stat.st_mtime_ns
