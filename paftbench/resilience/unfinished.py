"""A checkpoint that is being saved: a directory under a temporary name, until a rename publishes it whole.

Every share is written and synced by its process, with a mark beside it. Then one process writes the manifest, syncs the
directory, and renames it under the fence's lock; so what stands under a final name is whole, whenever anything was
killed.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Literal, get_args

from paftbench.errors import Refused
from paftbench.records.door import parse, plain
from paftbench.resilience.fence import Fence
from paftbench.resilience.manifest import MANIFEST, Manifest, ShareMark
from paftbench.resilience.share_file import write
from paftbench.store.files import read_json, sync, write_json

Stage = Literal["begun", "share half", "share written", "share marked", "manifest written", "published", "pruned"]
STAGES: Final[tuple[Stage, ...]] = get_args(Stage)
_MARK: Final = ".mark.json"


def nothing(stage: Stage) -> None:
    """What happens at a stage of a save, unless a fault is to."""


@dataclass(frozen=True, kw_only=True)
class Unfinished:
    """The save of `step` in the directory of checkpoints `folder`, by processes of the fence's generation.

    `at` is called at every stage with its name: loud faults strike there.
    """

    folder: Path
    step: int
    fence: Fence
    at: Callable[[Stage], None] = nothing

    @property
    def path(self) -> Path:
        return self.folder / f".{self.step}.{self.fence.generation}.tmp"

    def add(self, share: str, pieces: Iterator[memoryview]) -> ShareMark:
        """Write a share and make it durable; `OSError` where the disk does not take it."""
        self.fence.check()
        self.path.mkdir(parents=True, exist_ok=True)
        self.at("begun")
        path = self.path / share
        with path.open("wb") as file:
            sha256 = write(file, self._watched(pieces))
            file.flush()
            os.fsync(file.fileno())
            mark = ShareMark(bytes=file.tell(), sha256=sha256)
        self.at("share written")
        write_json(self._mark(share), asdict(mark))
        self.at("share marked")
        return mark

    def marks(self, shares: Sequence[str]) -> dict[str, ShareMark]:
        """Of those shares that are durable."""
        there = [share for share in shares if self._mark(share).exists()]
        return {share: parse(ShareMark, read_json(self._mark(share)), str(self._mark(share))) for share in there}

    def publish(self, shares: Sequence[str], world_size: int, more: Mapping[str, Any]) -> Path:
        """Give it its final name.

        `ValueError` where a share is not there, `Fenced` where another generation saves.
        """
        marks = self.marks(shares)
        if missing := [share for share in shares if share not in marks]:
            raise Refused(f"the checkpoint of step {self.step} lacks {', '.join(missing)}: it is not published")
        manifest = Manifest(
            step=self.step, world_size=world_size, generation=self.fence.generation, shares=marks, more=dict(more)
        )
        write_json(self.path / MANIFEST, plain(manifest))
        for share in shares:
            self._mark(share).unlink()
        sync(self.path)
        self.at("manifest written")
        with self.fence.held():
            final = self._free_name()
            os.rename(self.path, final)
            sync(self.folder)
        self.at("published")
        return final

    def _watched(self, pieces: Iterator[memoryview]) -> Iterator[memoryview]:
        yield next(pieces)
        self.at("share half")
        yield from pieces

    def _mark(self, share: str) -> Path:
        return self.path / (share + _MARK)

    def _free_name(self) -> Path:
        """After a roll-back a step is saved again: that stands beside what was there, which nothing writes over."""
        name = self.folder / str(self.step)
        again = 0
        while name.exists():
            again += 1
            name = self.folder / f"{self.step}.{again}"
        return name
