"""Ranks as threads that take turns: exactly one runs, until it waits for others or ends.

So a run is the same each time: no rank races another for the global random streams, of which each has its own, and
none can wait for what will not come without being noticed at once.
"""

import sys
import threading
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from weakref import WeakSet

from paftbench.errors import Refused
from paftbench.testing.streams import Streams


class RankEnded(SystemExit):
    """Raised in a rank that has to end because the run is over; no `except Exception` holds it back."""


@dataclass(kw_only=True)
class _Meeting:
    what: str
    ranks: list[int] = field(default_factory=list)


class Turns:
    """Whose turn it is among `world_size` threads; a rank gives its turn away where it waits for others.

    `stuck` says what is wrong once every rank that has not ended waits for another; `stop` ends the run.
    """

    def __init__(self, world_size: int, on_stop: Callable[[], None]) -> None:
        self.world_size = world_size
        self.stuck: str | None = None
        self.over = False
        self._on_stop = on_stop
        self._changed = threading.Condition()
        self._streams = [Streams() for _ in range(world_size)]
        self._turn: int | None = 0
        self._ready = set(range(world_size))
        self._ended: dict[int, str] = {}
        self._waits: dict[int, str] = {}
        # A place is forgotten once all have come to it, so that the next meeting there is another.
        self._meetings: dict[Hashable, _Meeting] = {}
        self._away: set[int] = set()
        self._threads: dict[int, int] = {}
        self._helpers: WeakSet[threading.Thread] = WeakSet()

    def begin(self, rank: int) -> None:
        """The calling thread is this rank from now on; returns when its turn has come."""
        with self._changed:
            self._threads[threading.get_ident()] = rank
        self._await_turn(rank)

    def end(self, rank: int, how: str) -> None:
        """The rank takes no more turns."""
        with self._changed:
            self._ended[rank] = how
            self._ready.discard(rank)
            self._threads.pop(threading.get_ident(), None)
            if self._turn == rank:
                self._hand_on(rank)
        if self.stuck is not None:
            self._on_stop()

    @contextmanager
    def away(self, place: Hashable, size: int, what: str) -> Iterator[None]:
        """Around what waits until `size` ranks have come to `place`: the turn goes on meanwhile.

        `ValueError` where the ranks at one place mean different things. Threads that are no rank pass.
        """
        rank = self._threads.get(threading.get_ident())
        if rank is None:
            self._helpers.add(threading.current_thread())
        # A collective that torch makes out of others waits inside itself: only the outermost gives the turn away.
        if rank is None or rank in self._away:
            yield
            return
        self._arrive(rank, place, size, what)
        self._away.add(rank)
        try:
            yield
        finally:
            self._away.discard(rank)
        self._await_turn(rank)

    def helpers(self) -> list[threading.Thread]:
        """The threads that waited for others and are no rank: those that ranks started."""
        return list(self._helpers)

    def stop(self) -> None:
        """End the run: every rank that waits is woken to end."""
        with self._changed:
            self.over = True
            self._changed.notify_all()
        self._on_stop()

    def stands(self) -> str:
        """Where each rank is, a line each."""
        with self._changed:
            return self._stands()

    def _stands(self) -> str:
        frames = sys._current_frames()
        lines = []
        idents = {rank: ident for ident, rank in self._threads.items()}
        for rank in range(self.world_size):
            state = self._ended.get(rank) or self._waits.get(rank) or ("runs" if self._turn == rank else "is to go on")
            place = _user_frame(frames.get(idents.get(rank, -1)))
            lines.append(f"  rank {rank} {state}{place if rank not in self._ended else ''}")
        return "\n".join(lines)

    def _arrive(self, rank: int, place: Hashable, size: int, what: str) -> None:
        with self._changed:
            self._check_over()
            meeting = self._meetings.setdefault(place, _Meeting(what=what))
            if meeting.what != what:
                raise Refused(
                    f"the ranks do not wait for the same thing: rank {rank} has come to {what}, but rank "
                    f"{meeting.ranks[0]} to {meeting.what}"
                )
            meeting.ranks.append(rank)
            self._waits[rank] = f"waits at {what}"
            self._ready.discard(rank)
            # The last to come sets all free, itself too: they go on in rank order, as their turns come round.
            if len(meeting.ranks) == size:
                del self._meetings[place]
                for arrived in meeting.ranks:
                    self._waits.pop(arrived)
                    self._ready.add(arrived)
            self._streams[rank].keep()
            self._hand_on(rank)
        if self.stuck is not None:
            self._on_stop()

    def _hand_on(self, rank: int) -> None:
        """The turn to the next rank that can go on, in rank order."""
        # Round from the one that gives it away, so that the order does not hang on which thread woke first.
        order = [(rank + step) % self.world_size for step in range(1, self.world_size + 1)]
        self._turn = next((other for other in order if other in self._ready), None)
        # Nobody can go on and somebody waits: what they wait for cannot come, now or ever. No time-out is needed.
        if self._turn is None and self._waits and not self.over:
            self.stuck = self._stands()
            self.over = True
        self._changed.notify_all()

    def _await_turn(self, rank: int) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self.over or self._turn == rank)
            self._check_over()
        self._streams[rank].resume()

    def _check_over(self) -> None:
        if self.over:
            raise RankEnded("the run is over")


def _user_frame(frame: FrameType | None) -> str:
    """The innermost line that is neither torch's nor the standard library's nor ours."""
    while frame is not None:
        module = str(frame.f_globals.get("__name__", ""))
        if module.partition(".")[0] not in ("torch", "threading", "contextlib", "paftbench"):
            return f", at {Path(frame.f_code.co_filename).name}:{frame.f_lineno} in {frame.f_code.co_name}"
        frame = frame.f_back
    return ""
