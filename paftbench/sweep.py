"""Running a sweep: which trials, in what order, each by one process of one sweep; the engine only places them."""

import shutil
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from paftbench.engines.local import LocalEngine
from paftbench.files import read_json, sync_directory, write_json
from paftbench.store import FAILURE, LOG, RESULT, TRIAL, Claim, Planned, read_record, try_claim, write_failure
from paftbench.verdict import Watch, strikes_in, verdict_of

State = Literal["done", "stale", "error", "missing"]
POLL_S = 0.03


@dataclass(frozen=True, kw_only=True)
class Policy:
    """Which finished trials run again, and whether the first error ends the sweep."""

    force: bool = False
    retry_errors: bool = False
    rerun_stale: bool = False
    stop_at_error: bool = False

    def runs(self, state: State) -> bool:
        again = {"done": self.force, "stale": self.rerun_stale, "error": self.retry_errors, "missing": True}
        return self.force or again[state]


@dataclass(frozen=True, kw_only=True)
class Finished:
    """A trial that ended in this sweep, or beside it in another."""

    planned: Planned
    outcome: str
    reason: str | None
    seconds: float
    log: Path


@dataclass(kw_only=True)
class _Run:
    planned: Planned
    directory: Path
    claim: Claim
    watch: Watch


def state_of(directory: Path, planned: Planned) -> State:
    """What is known of a planned trial; stale: a plugin's source has changed since."""
    if not (directory / RESULT).is_file():
        return "missing"
    record = read_record(directory)
    if record.result is not None and record.result["outcome"] == "error":
        return "error"
    return "done" if record.planned["sources"] == planned.sources else "stale"


def with_goldens(selected: Sequence[Planned], everything: Iterable[Planned]) -> list[Planned]:
    """The selected trials, and before them the golden runs they are judged by."""
    needed = {item.golden_id for item in selected} | {item.id for item in selected}
    return [item for item in everything if item.id in needed]


@dataclass(kw_only=True)
class Sweep:
    """One pass over planned trials, golden runs first in the list."""

    root: Path
    planned: Sequence[Planned]
    engine: LocalEngine
    policy: Policy = field(default_factory=Policy)
    report: Callable[[Finished], None] = lambda finished: None
    _prepared: bool = field(default=False, init=False)

    def prepare(self) -> int:
        """Check that the engine can place every trial and write the plans; how many trials are to run."""
        for item in self.planned:
            if item.trial.nodes > 1:
                raise ValueError(f"{item.name}: nodes {item.trial.nodes} needs an engine of more than this machine")
        for item in self.planned:
            _recover(self.root / item.id)
            _write_plan(self.root / item.id, item)
        self._pending = [item for item in self.planned if self.policy.runs(state_of(self.root / item.id, item))]
        self._again = {item.id for item in self._pending if (self.root / item.id / RESULT).is_file()}
        self._prepared = True
        return len(self._pending)

    def run(self) -> None:
        """Run what is to run; on the way out, also by Ctrl-C, trials are stopped and claims given free."""
        if not self._prepared:
            self.prepare()
        self._running: dict[Path, _Run] = {}
        self._stopping = False
        try:
            while not self._stopping and (self._running or self._pending):
                self._start()
                self._collect()
                time.sleep(POLL_S)
        finally:
            self.engine.stop(list(self._running))
            for run in self._running.values():
                run.claim.release()

    def _start(self) -> None:
        for item in list(self._pending):
            if not self.engine.fits(item.trial.processes):
                return
            if not self._golden_is_done(item):
                continue
            claim = try_claim(self.root / item.id)
            if claim is None:
                continue
            self._pending.remove(item)
            if item.id not in self._again and (self.root / item.id / RESULT).is_file():
                claim.release()
                self._tell(item, 0.0)
                continue
            try:
                self._launch(item, claim)
            except BaseException:
                claim.release()
                raise

    def _golden_is_done(self, item: Planned) -> bool:
        waiting = {other.id for other in self._pending} | {run.planned.id for run in self._running.values()}
        return item.golden_id is None or item.golden_id not in waiting

    def _launch(self, item: Planned, claim: Claim) -> None:
        directory = self.root / item.id
        if item.id in self._again:
            # The old result stays where it is until the new one is there.
            directory = self.root / f".rerun-{item.id}"
            shutil.rmtree(directory, ignore_errors=True)
        _write_plan(directory, item)
        (directory / FAILURE).unlink(missing_ok=True)
        golden = self.root / (item.golden_id or "") / RESULT
        result: dict[str, Any] | None = read_json(golden) if item.golden_id and golden.is_file() else None
        watch = Watch(directory, item.trial.timeout_s, result)
        self.engine.start(directory, item.trial.processes, torchrun=item.trial.placement == "torchrun")
        self._running[directory] = _Run(planned=item, directory=directory, claim=claim, watch=watch)

    def _collect(self) -> None:
        for directory, code in self.engine.ended():
            run = self._running[directory]
            if not (directory / RESULT).is_file():
                verdict = verdict_of(directory, code, run.watch.started)
                self._fail(run, verdict.outcome, verdict.reason, verdict.strikes)
            self._finish(run)
        for run in list(self._running.values()):
            reason = run.watch.hung()
            if reason is not None:
                self.engine.stop([run.directory])
                if not (run.directory / RESULT).is_file():
                    self._fail(run, "hung", reason, strikes_in(run.directory, run.watch.started))
                self._finish(run)

    def _fail(self, run: _Run, outcome: str, reason: str, strikes: dict[str, int]) -> None:
        write_failure(run.directory, outcome, reason, strikes=strikes, total_s=run.watch.elapsed_s)

    def _finish(self, run: _Run) -> None:
        if run.planned.id in self._again:
            _swap(run.directory, self.root / run.planned.id)
        del self._running[run.directory]
        run.claim.release()
        self._tell(run.planned, run.watch.elapsed_s)

    def _tell(self, item: Planned, seconds: float) -> None:
        directory = self.root / item.id
        result = read_json(directory / RESULT)
        self._stopping |= result["outcome"] == "error" and self.policy.stop_at_error
        self.report(
            Finished(
                planned=item,
                outcome=result["outcome"],
                reason=result.get("reason"),
                seconds=seconds,
                log=directory / LOG,
            )
        )


def _swap(new: Path, old: Path) -> None:
    """Put a finished directory in the place of an older one, which goes last."""
    aside = old.with_name(f".old-{old.name}")
    shutil.rmtree(aside, ignore_errors=True)
    old.rename(aside)
    new.rename(old)
    sync_directory(old.parent)
    shutil.rmtree(aside)


def _recover(directory: Path) -> None:
    """Undo a swap that was cut off in the middle."""
    aside = directory.with_name(f".old-{directory.name}")
    if aside.is_dir() and not directory.exists():
        aside.rename(directory)


def _write_plan(directory: Path, planned: Planned) -> None:
    """The plan of a trial; an edited experiment may name a finished one anew, but what it ran with stays."""
    new = planned.spec()
    if (directory / TRIAL).is_file():
        record = read_record(directory)
        if record.result is not None:
            new.update(sources=record.planned["sources"], plugins=record.planned["plugins"])
        if new == record.planned:
            return
    directory.mkdir(parents=True, exist_ok=True)
    write_json(directory / TRIAL, new)
