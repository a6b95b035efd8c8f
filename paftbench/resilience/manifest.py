"""What a published checkpoint says of itself, in `manifest.json`: with it under the final name, the save counts."""

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from paftbench.errors import Refused
from paftbench.records.door import parse, wrong
from paftbench.records.kinds import Count, Positive, Text
from paftbench.store.files import read_json

MANIFEST: Final = "manifest.json"
FORMAT: Final = 1
_SHARE: Final = re.compile(r"ranks-from-\d+\.safetensors")


@dataclass(frozen=True, kw_only=True)
class ShareMark:
    """What was written of one share."""

    bytes: Count
    sha256: Text


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """A checkpoint after `step` steps of `world_size` ranks; `more` is the caller's, in the same transaction."""

    format: Positive = FORMAT
    step: Count
    world_size: Positive
    generation: Text
    shares: dict[Text, ShareMark]
    more: dict[Text, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.format != FORMAT:
            raise wrong("format", f"of a checkpoint must be {FORMAT}, which this version reads", self.format)
        for name in self.shares:
            if not _SHARE.fullmatch(name):
                raise wrong("shares", "must be named ranks-from-RANK.safetensors, in the checkpoint's directory", name)
        if not self.shares:
            raise Refused("shares of a checkpoint must be one at least, got none")


def share_of(rank: int) -> str:
    """The file of the process whose first rank it is."""
    return f"ranks-from-{rank}.safetensors"


def read_manifest(directory: Path) -> Manifest:
    """`ValueError` of one line where a checkpoint's directory has none that can be read."""
    path = directory / MANIFEST
    try:
        return parse(Manifest, read_json(path), str(path))
    except FileNotFoundError:
        raise Refused(f"{directory} has no {MANIFEST}: it is no published checkpoint") from None
