"""A group's side channel: collectives that run in a thread while the training goes on."""

import threading
from collections.abc import Callable
from contextvars import copy_context
from typing import TypeVar
from weakref import WeakKeyDictionary

import torch.distributed as dist

T = TypeVar("T")
Wait = Callable[[], T]


class Side:
    """A second group of the same members, and its work in the order in which it was started: the same on every rank.

    A group has one for as long as it lives, whoever asks: each costs threads and sockets.
    """

    def __init__(self, group: dist.ProcessGroup) -> None:
        members = dist.get_process_group_ranks(group)
        # Only the members come here: waiting for every process of the world would hang where the group is a part.
        group_of_members = dist.new_group(members, use_local_synchronization=True)
        assert isinstance(group_of_members, dist.ProcessGroup)
        self._group = group_of_members
        self._last: threading.Thread | None = None

    @classmethod
    def of(cls, group: dist.ProcessGroup) -> "Side":
        """The group's own; all members must ask for it first at the same place."""
        side = _SIDES.get(group)
        if side is None:
            side = _SIDES[group] = cls(group)
        return side

    def start(self, work: Callable[[dist.ProcessGroup], T]) -> Wait[T]:
        """Start `work(group)` behind what was started before; a function that waits for its value, or raises."""
        before, values, failures = self._last, list[T](), list[BaseException]()

        def run() -> None:
            if before is not None:
                before.join()
            try:
                values.append(work(self._group))
            except BaseException as error:
                failures.append(error)

        # With this thread's context: where ranks are threads, it says which rank's groups to use.
        thread = threading.Thread(target=copy_context().run, args=(run,), name="side", daemon=True)
        self._last = thread
        thread.start()

        def wait() -> T:
            thread.join()
            if failures:
                raise RuntimeError("the overlapped mean failed") from failures[0]
            return values[0]

        return wait


_SIDES: "WeakKeyDictionary[dist.ProcessGroup, Side]" = WeakKeyDictionary()
