"""The structured log of a run: a line of JSON per event, from every rank, whole or not there."""

import os
import sys
import time
from pathlib import Path
from typing import Any, Final, TextIO

import structlog

from paftbench.store.files import encode_line

EVENTS: Final = "events.jsonl"
_LOUD: Final = frozenset({"anomaly", "recovery", "checkpoint lost", "set aside", "failed"})


class Events:
    """Says events to `events.jsonl` in a run's directory, and those that people wait for to the terminal as well.

    Each line is one write to a file that is appended to, so ranks of one machine may share it, and what was said before
    a kill stands there.
    """

    def __init__(
        self, directory: Path, *, run: str, generation: str, rank: int, terminal: TextIO | None = None
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._descriptor = os.open(directory / EVENTS, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._about = {"run": run, "generation": generation, "rank": rank}
        self._terminal = sys.stderr if terminal is None else terminal
        self._log = structlog.wrap_logger(None, processors=[self._write])

    def say(self, event: str, **values: Any) -> None:
        """One event; `values` are what JSON can hold."""
        self._log.info(event, time=time.time(), **self._about, **values)

    def failed(self, error: BaseException, **values: Any) -> None:
        """The error that ends a run."""
        self.say("failed", error=type(error).__name__, message=str(error), **values)

    def close(self) -> None:
        os.close(self._descriptor)

    def _write(self, logger: Any, name: str, event: Any) -> Any:
        """structlog's last processor: both outputs, and nothing left to log."""
        order = {"time": event.pop("time"), "event": event.pop("event")}
        row = {**order, **event}
        os.write(self._descriptor, encode_line(row).encode())
        if row["event"] in _LOUD and (row["rank"] == 0 or row["event"] == "failed"):
            console = structlog.dev.ConsoleRenderer(colors=self._terminal.isatty())
            self._terminal.write(str(console(None, name, {"event": row["event"], **event})) + "\n")
            self._terminal.flush()
        raise structlog.DropEvent
