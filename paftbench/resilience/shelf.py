"""The published checkpoints of a run: which there are, which of them is whole, which may go."""

import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from paftbench.errors import Refused
from paftbench.resilience.fence import Fence
from paftbench.resilience.manifest import Manifest, read_manifest
from paftbench.resilience.share_file import digest_of
from paftbench.resilience.unfinished import Stage, nothing
from paftbench.store.files import check_inside, read_json, sync, write_json

_NAME: Final = re.compile(r"(?P<step>\d+)(?:\.(?P<again>\d+))?")
_STABLE: Final = "stable.json"
_BAD: Final = ".bad"


@dataclass(frozen=True, kw_only=True, order=True)
class Published:
    """A checkpoint under its final name; a later one of the same step is the newer."""

    step: int
    again: int
    path: Path


@dataclass(frozen=True, kw_only=True)
class Shelf:
    """The directory of checkpoints `folder`."""

    folder: Path

    def newest_first(self) -> list[Published]:
        found = []
        for path in self.folder.iterdir() if self.folder.is_dir() else ():
            if (named := _NAME.fullmatch(path.name)) and path.is_dir():
                found.append(Published(step=int(named["step"]), again=int(named["again"] or 0), path=path))
        return sorted(found, reverse=True)

    def stable(self) -> Published | None:
        """The newest that was followed by healthy steps; None where none was."""
        path = self.folder / _STABLE
        if not path.exists():
            return None
        name = read_json(path).get("name")
        return next((item for item in self.newest_first() if item.path.name == name), None)

    def mark_stable(self, item: Published) -> None:
        write_json(self.folder / _STABLE, {"name": item.path.name})

    def set_aside(self, item: Published, fence: Fence) -> Path:
        """Take a damaged checkpoint out of the way, never away."""
        with fence.held():
            number = 0
            while (name := item.path.with_name(f"{item.path.name}{_BAD}{number or ''}")).exists():
                number += 1
            item.path.rename(name)
            sync(self.folder)
        return name

    def prune(self, keep: int, fence: Fence, at: Callable[[Stage], None] = nothing) -> list[int]:
        """Remove all but the newest `keep`, never the stable one; the steps of what went.

        Nothing goes while none of those that stay is whole. A directory gets a temporary name first: one that is half
        removed is no checkpoint.
        """
        items, stable, gone = self.newest_first(), self.stable(), []
        kept, others = items[: max(keep, 1)], [item for item in items[max(keep, 1) :] if item != stable]
        for item in others if others and any(whole(item.path) for item in kept) else ():
            with fence.held():
                dying = self.folder / f".{item.path.name}.{fence.generation}.tmp"
                item.path.rename(dying)
            shutil.rmtree(dying)
            gone.append(item.step)
        at("pruned")
        return gone


def verified(directory: Path) -> Manifest:
    """A checkpoint's manifest, when every share is there with the bytes that were written; else `ValueError`."""
    manifest = read_manifest(directory)
    for name, mark in manifest.shares.items():
        path = directory / name
        check_inside(path, directory)
        if not path.exists():
            raise Refused(f"{directory} lacks {name}")
        if (size := path.stat().st_size) != mark.bytes:
            raise Refused(f"{path} has {size} bytes, written were {mark.bytes}")
        if (found := digest_of(path)) != mark.sha256:
            raise Refused(f"{path} has SHA-256 {found[:12]}..., written were {mark.sha256[:12]}...")
    return manifest


def whole(directory: Path) -> bool:
    """Whether a checkpoint is `verified`."""
    try:
        verified(directory)
    except (ValueError, OSError):
        return False
    return True
