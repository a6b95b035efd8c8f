"""What a persisting process is asked to do, and what it answers: a line of JSON each way."""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from paftbench.records.door import parse


@dataclass(frozen=True, kw_only=True)
class Order:
    """Save the `size` bytes of the shared memory as `share` of a checkpoint; who `publishes` waits for the others."""

    folder: str
    step: int
    generation: str
    share: str
    size: int
    shares: tuple[str, ...]
    world_size: int
    publishes: bool
    keep: int
    patience_s: float
    more: dict[str, Any] = field(default_factory=dict)

    @property
    def path(self) -> Path:
        return Path(self.folder)


@dataclass(frozen=True, kw_only=True)
class Answer:
    """How an order ended: `published` names the checkpoint, `error` says why there is none; seconds of the writing."""

    step: int
    seconds: float
    published: str | None = None
    error: str | None = None


def line_of(message: Order | Answer) -> bytes:
    return json.dumps(asdict(message), separators=(",", ":")).encode() + b"\n"


def order_in(line: bytes) -> Order:
    return parse(Order, json.loads(line), "an order to save")


def answer_in(line: bytes) -> Answer:
    return parse(Answer, json.loads(line), "an answer of the persisting process")
