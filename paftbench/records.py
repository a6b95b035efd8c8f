"""What a running trial writes: a row per step, a row per strike, and the course of its quality."""

import os
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from paftbench.files import encode_line, read_lines, write_text
from paftbench.injector import Injector
from paftbench.pipeline import Pipeline
from paftbench.quality import Quality
from paftbench.ranks import Ranks

STEPS, INJECTIONS = "steps.jsonl", "injections.jsonl"
FLUSH_STEPS = {False: 10, True: 50}  # by whether processes have to be asked


class Recorder:
    """Collects rows on every process and writes them where rank 0 lives, in step order."""

    def __init__(self, directory: Path, ranks: Ranks, fault_names: Sequence[str]) -> None:
        self.directory = directory
        self.history: dict[str, list[float]] = {"step": [], "mean_model": [], "worst_rank": [], "rank0": []}
        self._ranks = ranks
        self._fault_order = {name: number for number, name in enumerate(fault_names)}
        self._rows: list[dict[str, Any]] = []
        self._injector: Injector | None = None
        self._touched = 0.0

    def begin(self, step: int) -> None:
        """Start or resume the files: rows of steps from `step` on are dropped."""
        if not self._ranks.hosts_first:
            return
        for name in (STEPS, INJECTIONS):
            path = self.directory / name
            kept = [row for row in read_lines(path) if row["step"] < step] if step and path.exists() else []
            write_text(path, "".join(encode_line(row) for row in kept))

    def quality(self, step: int, quality: Quality) -> None:
        """Note an evaluation after `step` completed steps."""
        self.history["step"].append(step)
        for name, value in asdict(quality).items():
            self.history[name].append(value)

    def step(self, step: int, losses: Sequence[float], lr: float, pipeline: Pipeline) -> None:
        """Note a completed step."""
        measured = asdict(pipeline.measured)
        self._rows.append(
            {
                "step": step,
                "loss": list(losses),
                "lr": lr,
                **measured,
                "strikes": pipeline.injector.drawn_now,
                "seconds": pipeline.clock.take(),
            }
        )
        self._injector = pipeline.injector
        self._beat()
        if self._due(step + 1):
            self.flush()

    def flush(self) -> None:
        """Write what has gathered; every process must call it."""
        strikes = [] if self._injector is None else self._injector.drain()
        gathered = self._ranks.gather_objects((self._rows, strikes))
        self._rows = []
        if not self._ranks.hosts_first:
            return
        rows = []
        for parts in zip(*(rows for rows, _ in gathered), strict=True):
            losses = [loss for part in parts for loss in part["loss"]]
            rows.append({**parts[0], "loss": losses, "strikes": sum(part["strikes"] for part in parts)})
        strikes = [row for _, part in gathered for row in part]
        strikes.sort(key=lambda row: (row["step"], self._fault_order[row["fault"]], row["rank"]))
        _append(self.directory / STEPS, rows)
        _append(self.directory / INJECTIONS, strikes)

    def _due(self, done: int) -> bool:
        """Regularly, and often at the start: a process that a strike kills early must leave a trace of the strike."""
        return done % FLUSH_STEPS[self._ranks.group is not None] == 0 or done & (done - 1) == 0

    def _beat(self) -> None:
        """Show whoever watches the trial that steps complete, also between writes."""
        now = time.monotonic()
        if self._ranks.hosts_first and now - self._touched > 1.0:
            self._touched = now
            os.utime(self.directory / STEPS)


def _append(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    with path.open("a") as file:
        file.write("".join(encode_line(row) for row in rows))
