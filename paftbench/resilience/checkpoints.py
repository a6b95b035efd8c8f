"""Checkpoints of a run of several processes: saved whole or not at all, loaded from the newest that all can read."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from paftbench.errors import Refused
from paftbench.ranks.axis import Ranks
from paftbench.resilience.fence import Fence, allowed, begin
from paftbench.resilience.manifest import read_manifest, share_of
from paftbench.resilience.order import Answer, Order
from paftbench.resilience.persister import Persister
from paftbench.resilience.share import read, snapshot_of
from paftbench.resilience.shelf import Published, Shelf, verified
from paftbench.resilience.unfinished import Stage, Unfinished, nothing
from paftbench.telling import reason_of

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Checkpoints:
    """How a run saves: after `every` steps, the newest `keep`, beside the training or `asynchronous`.

    A checkpoint is stable when `stable_after` healthy steps have followed it. `patience_s` is how long the publishing
    process waits for the other processes' shares.
    """

    every: int = 50
    keep: int = 3
    asynchronous: bool = True
    stable_after: int = 50
    patience_s: float = 120.0

    def __post_init__(self) -> None:
        for name, least, meaning in (
            ("every", 0, "steps between checkpoints, 0 for none"), ("keep", 1, "checkpoints that stay"),
            ("stable_after", 0, "healthy steps before a checkpoint counts as stable"),
        ):  # fmt: skip
            if getattr(self, name) < least:
                raise Refused(f"checkpoints.{name} ({meaning}) must be >= {least}, got {getattr(self, name)}")
        if not self.patience_s > 0:
            raise Refused(f"checkpoints.patience_s (seconds) must be > 0, got {self.patience_s}")


@dataclass(frozen=True, kw_only=True)
class Loaded:
    """A checkpoint as one process reads it: its `state`, after `step` steps, and what all had in common, `more`.

    Where the number of ranks has changed, every process gets that of rank 0.
    """

    step: int
    state: Any
    more: Mapping[str, Any]
    world_size: int


@dataclass(kw_only=True)
class Saver:
    """One process's end of a run's checkpoints; every process calls `save`, `load` and `close`, in the same order.

    Made by `opened_in`. `at` is called at every stage of a save that is not asynchronous.
    """

    shelf: Shelf
    ranks: Ranks
    fence: Fence
    config: Checkpoints
    at: Callable[[Stage], None] = nothing
    passed_over: list[tuple[Path, str]] = field(default_factory=list, init=False)  # where it is now, and what is wrong
    _persister: Persister | None = field(default=None, init=False)

    def save(self, step: int, state: Any, more: Mapping[str, Any]) -> Answer | None:
        """Save the state after `step` steps; `more` is that of the process with rank 0.

        Asynchronous: how the save *before* ended, where nobody has asked yet. Else `OSError`, in every process, where
        one of them could not write.
        """
        snapshot = snapshot_of(state)
        share = share_of(self.ranks.local[0])
        shares = self.ranks.gather_objects(share)
        if self.config.asynchronous:
            order = Order(
                folder=str(self.shelf.folder), step=step, generation=self.fence.generation, share=share,
                size=snapshot.bytes, shares=tuple(shares), world_size=self.ranks.world_size,
                publishes=self.ranks.hosts_first, keep=self.config.keep, patience_s=self.config.patience_s,
                more=dict(more),
            )  # fmt: skip
            self._persister = self._persister or Persister()
            return self._persister.submit(snapshot, order)
        unfinished = Unfinished(folder=self.shelf.folder, step=step, fence=self.fence, at=self.at)
        self._together(lambda: unfinished.add(share, snapshot.pieces()))
        self._together(lambda: self._publish(unfinished, shares, more) if self.ranks.hosts_first else None)
        return None

    def poll(self) -> Answer | None:
        """How the save in flight ended, once."""
        return None if self._persister is None else self._persister.poll()

    @property
    def in_flight(self) -> int | None:
        """The step whose save has not ended, as far as this process has asked."""
        return None if self._persister is None else self._persister.in_flight

    def load(self, *, stable: bool = False) -> Loaded | None:
        """The newest that every process can read; None where there is none. Those passed over are set aside.

        `stable`: the one that is marked so, where one is.
        """
        while True:
            newest = self.ranks.gather_objects(self._newest(stable))[0]
            if newest is None:
                return None
            loaded, error = self._read(newest)
            errors = [said for said in self.ranks.gather_objects(error) if said is not None]
            if not errors:
                return loaded
            aside = self.shelf.set_aside(newest, self.fence) if self.ranks.hosts_first else None
            (path, *_) = self.ranks.gather_objects(aside)
            log.warning("%s is set aside: %s", path, errors[0])
            self.passed_over.append((path, errors[0]))

    def close(self) -> Answer | None:
        """Wait for the save in flight, how it ended; and let the persisting process go."""
        persister, self._persister = self._persister, None
        return None if persister is None else persister.close()

    def _publish(self, unfinished: Unfinished, shares: Sequence[str], more: Mapping[str, Any]) -> None:
        unfinished.publish(shares, self.ranks.world_size, more)
        self.shelf.prune(self.config.keep, self.fence, self.at)

    def _together(self, write: Callable[[], Any]) -> None:
        """Fail where any process fails, so that none waits for one that has given up."""
        own: OSError | None = None
        try:
            write()
        except OSError as error:
            own = error
        said = [error for error in self.ranks.gather_objects(None if own is None else reason_of(own)) if error]
        if said:
            raise OSError(f"the checkpoint is not saved: {said[0]}") from own

    def _newest(self, stable: bool) -> Published | None:
        """As the first process sees it."""
        if not self.ranks.hosts_first:
            return None
        return (self.shelf.stable() if stable else None) or next(iter(self.shelf.newest_first()), None)

    def _read(self, item: Published) -> tuple[Loaded | None, str | None]:
        try:
            # The first looks at all shares, also at those that nobody reads where the number of ranks has changed.
            found = verified(item.path) if self.ranks.hosts_first else read_manifest(item.path)
            same = found.world_size == self.ranks.world_size
            name = share_of(self.ranks.local[0] if same else 0)
            state = read(item.path / name, found.shares[name].sha256)
        except (ValueError, OSError) as error:
            return None, reason_of(error)
        return Loaded(step=found.step, state=state, more=found.more, world_size=found.world_size), None


def opened_in(
    folder: Path,
    ranks: Ranks,
    config: Checkpoints,
    check: Callable[[], None] = allowed,
    at: Callable[[Stage], None] = nothing,
) -> Saver:
    """Begin a generation of saves in `folder`; every process calls it. `ValueError` where it cannot be written.

    `check` raises where this run may no longer publish, such as a trial whose claim is lost.
    """
    fence, error = None, None
    if ranks.hosts_first:
        try:
            fence = begin(folder, check)
        except ValueError as refused:
            error = str(refused)
    generation, error = ranks.gather_objects((None if fence is None else fence.generation, error))[0]
    if error is not None:
        raise Refused(error)
    own = Fence(folder=folder, generation=generation, check=check)
    return Saver(shelf=Shelf(folder=folder), ranks=ranks, fence=own, config=config, at=at)
