"""What a running trial writes: a row per step, a row per strike, and the course of its quality."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path

from paftbench.faults.injector import Injector
from paftbench.ranks.axis import Ranks
from paftbench.records.door import parse, plain
from paftbench.records.step import DecisionRow, StepRow
from paftbench.step.pipeline import Pipeline
from paftbench.store.lease import Lease
from paftbench.store.rows import Extent, RowFile, RowsLost
from paftbench.training.ours import RECORDS, ours
from paftbench.training.quality import Quality

STEPS, INJECTIONS = "steps.jsonl", "injections.jsonl"
FLUSH_STEPS = {False: 10, True: 50}  # by whether processes have to be asked


class Recorder:
    """Collects rows on every process and writes them where rank 0 lives, in step order.

    Under a `lease` nothing is written once that is lost: `LostClaim`.
    """

    def __init__(self, directory: Path, ranks: Ranks, fault_names: Sequence[str], lease: Lease | None = None) -> None:
        self.directory = directory
        self._check = None if lease is None else lease.check
        self._files: dict[str, RowFile] = {}
        self.history: dict[str, list[float]] = {"step": [], "mean_model": [], "worst_rank": [], "rank0": []}
        self._ranks = ranks
        self._fault_order = {name: number for number, name in enumerate(fault_names)}
        self._rows: list[StepRow] = []
        self._injector: Injector | None = None
        self._touched = 0.0

    @ours(RECORDS)
    def begin(self, kept: Mapping[str, Extent] | None = None) -> str | None:
        """Start the files, or resume them where a checkpoint was taken; why not, where rows of before are missing.

        Every process must call it: they agree.
        """
        for file in self._files.values():
            file.close()
        self._files, missing = {}, None
        if self._ranks.hosts_first:
            try:
                for name in (STEPS, INJECTIONS):
                    extent = None if kept is None else kept[name]
                    self._files[name] = RowFile(self.directory / name, extent, self._check)
            except RowsLost as error:
                missing = str(error)
        return next((said for said in self._ranks.gather_objects(missing) if said), None)

    def extents(self) -> dict[str, Extent]:
        """How much of each file there is, made durable; nothing where rank 0 does not live.

        `RowsLost` where somebody has changed a file meanwhile.
        """
        for file in self._files.values():
            file.sync()
        return {name: file.extent for name, file in self._files.items()}

    @ours(RECORDS)
    def close(self) -> None:
        """Make durable what was written, and write no more; `RowsLost` as `extents`."""
        self.extents()
        for file in self._files.values():
            file.close()
        self._files = {}

    def quality(self, step: int, quality: Quality) -> None:
        """Note an evaluation after `step` completed steps."""
        self.history["step"].append(step)
        for name, value in asdict(quality).items():
            self.history[name].append(value)

    @ours(RECORDS)
    def step(self, step: int, losses: Sequence[float], lr: float, pipeline: Pipeline) -> None:
        """Note a completed step."""
        measured = vars(pipeline.measured)
        if (chosen := pipeline.measured.decision) is not None:
            measured = measured | {"decision": parse(DecisionRow, asdict(chosen), "a decision")}
        strikes, seconds = pipeline.injector.drawn_now, pipeline.clock.take()
        self._rows.append(StepRow(step=step, loss=tuple(losses), lr=lr, **measured, strikes=strikes, seconds=seconds))
        self._injector = pipeline.injector
        self._beat()
        if self._due(step + 1):
            self.flush()

    @ours(RECORDS)
    def flush(self) -> None:
        """Write what has gathered; every process must call it."""
        strikes = [] if self._injector is None else self._injector.drain()
        gathered = self._ranks.gather_objects((self._rows, strikes))
        self._rows = []
        if not self._ranks.hosts_first:
            return
        rows = []
        for parts in zip(*(rows for rows, _ in gathered), strict=True):
            losses = tuple(loss for part in parts for loss in part.loss)
            rows.append(replace(parts[0], loss=losses, strikes=sum(part.strikes for part in parts)))
        strikes = [row for _, part in gathered for row in part]
        strikes.sort(key=lambda row: (row["step"], self._fault_order[row["fault"]], row["rank"]))
        if self._check is not None:
            self._check()
        self._files[STEPS].append(map(plain, rows))
        self._files[INJECTIONS].append(strikes)

    def _due(self, done: int) -> bool:
        """Regularly, and often at the start: a process that a strike kills early must leave a trace of the strike."""
        return done % FLUSH_STEPS[self._ranks.group is not None] == 0 or done & (done - 1) == 0

    def _beat(self) -> None:
        """Show whoever watches the trial that steps complete, also between writes."""
        now = time.monotonic()
        if self._ranks.hosts_first and now - self._touched > 1.0:
            self._touched = now
            self._files[STEPS].touch()
