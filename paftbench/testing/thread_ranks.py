"""Ranks as threads of this process: the only file that touches torch's threaded process group, which is private."""

import ctypes
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from datetime import timedelta
from functools import wraps
from queue import Empty, SimpleQueue
from types import FunctionType
from typing import Any

import torch
import torch.distributed as dist
from torch.testing._internal.distributed import multi_threaded_pg as threaded

from paftbench.testing.errors import RankError, RanksStuck
from paftbench.testing.streams import streams_untouched
from paftbench.testing.turns import RankEnded, Turns

BACKEND = "paftbench_threads"
GENTLE_S = 0.5  # for ranks to end by themselves, where they wait for others
GRACE_S = 5.0
POLL_S = 0.1
_NO_COLLECTIVES = ("__init__", "__repr__", "size", "getBackendName")

_c10d: Any = torch._C._distributed_c10d
_running = threading.Lock()
_turns: Turns | None = None
_world: ContextVar[Any] = ContextVar("world")

Body = Callable[[int, Callable[[], None]], Any]


class _Group(threaded.ProcessLocalGroup):
    """torch's threaded group, whose ranks give their turn away where they wait.

    Its collectives are of one run: what a thread of an ended run still starts meets nobody.
    """

    def __init__(self, rank: int, world_size: int) -> None:
        super().__init__(rank, world_size)
        self.turns = _turns

    @property
    def pg_name(self) -> str:
        """What torch's class pairs calls by."""
        # Groups are numbered anew in each run: without the run's own mark a late thread would join the next run's.
        return f"{id(self.turns)} {super().pg_name}"


def _taking_turns(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    @torch.compiler.disable  # a compiled model waits here for others as any other does
    @wraps(method)
    def collective(group: _Group, *args: Any, **kwargs: Any) -> Any:
        if _turns is None or group.turns is not _turns:
            raise RankEnded("the run is over")
        with _turns.away(group.pg_name, group.size(), name.strip("_")):
            return method(group, *args, **kwargs)

    return collective


# Every method that waits for others, also those that a later torch adds: one that was missed would keep its turn while
# it waits, and nothing would ever run again.
for _name, _method in vars(threaded.ProcessLocalGroup).items():
    if isinstance(_method, FunctionType) and _name not in _NO_COLLECTIVES:
        setattr(_Group, _name, _taking_turns(_name, _method))


def _create(store: dist.Store, rank: int, world_size: int, timeout: timedelta) -> _Group:
    return _Group(rank, world_size)


class _World(threaded.ThreadLocalWorld):
    """Groups by rank: a thread that a rank starts sees its rank's, where it carries the rank's context."""

    def _get_world(self) -> Any:
        world = _world.get(None)
        return super()._get_world() if world is None else world


def run_threads(world_size: int, body: Body, *, limit_s: float, progress: Callable[[int], str]) -> list[Any]:
    """`body(rank, finish)` on every rank of an initialised group; its results in rank order.

    `finish()` returns when every rank has called it. `RankError` with the first rank that raised, `RanksStuck` where
    ranks wait for what cannot come or the limit has passed. Afterwards the process's own groups, random streams,
    hooks and default dtype are as they were. `progress(rank)` says in words how far a rank is.
    """
    __tracebackhide__ = True
    global _turns
    if not _running.acquire(blocking=False):
        raise RuntimeError("ranks run in this process already: a run cannot start inside another, or beside it")
    try:
        with _process_untouched():
            _turns = turns = Turns(world_size, _wake_collectives)
            return _Threads(turns, body, progress).results(limit_s)
    finally:
        _turns = None
        _running.release()


class _Threads:
    """The threads of one run, and the first error."""

    def __init__(self, turns: Turns, body: Body, progress: Callable[[int], str]) -> None:
        self._turns = turns
        self._body = body
        self._progress = progress
        self._store = dist.HashStore()
        self._results: list[Any] = [None] * turns.world_size
        self._error: tuple[int, BaseException] | None = None
        self._guard = threading.Lock()
        # Not `Thread.join`: interrupted by a signal, it takes a thread that runs for one that has ended.
        self._ended: SimpleQueue[int] = SimpleQueue()
        self._alive = set(range(turns.world_size))
        self._threads = [
            threading.Thread(target=self._run, args=(rank,), name=f"rank {rank}", daemon=True)
            for rank in range(turns.world_size)
        ]

    def results(self, limit_s: float) -> list[Any]:
        """Start the threads, wait for them; whatever interrupts the wait ends them first."""
        __tracebackhide__ = True
        deadline = time.monotonic() + limit_s
        late = ""
        try:
            for thread in self._threads:
                thread.start()
            while self._alive and not self._turns.over:
                self._await_end(POLL_S)
                if time.monotonic() > deadline:
                    late = self._turns.stands()
                    break
        finally:
            left = self._stop()
        if self._error is not None:
            rank, error = self._error
            if not isinstance(error, Exception | SystemExit):
                raise error  # what tests skip or end themselves with
            raise RankError(rank, self._turns.world_size, self._progress(rank), error) from error
        if self._turns.stuck is not None:
            raise RanksStuck("the ranks wait for each other", self._turns.stuck)
        if late:
            kept = f"; ranks {left} could not be ended and still run in this process" if left else ""
            raise RanksStuck(f"the run took longer than limit_s={limit_s:g}{kept}", late)
        return self._results

    def _run(self, rank: int) -> None:
        # A context variable, not torch's thread-local: threads that the rank starts carry it on.
        _world.set(threaded.ThreadLocalWorld()._get_world())
        how = "has ended"
        try:
            self._turns.begin(rank)
            dist.init_process_group(BACKEND, store=self._store, rank=rank, world_size=self._turns.world_size)
            self._results[rank] = self._body(rank, self._finish)
            dist.destroy_process_group()
        except BaseException as error:
            how = f"has failed with {type(error).__name__}"
            self._fail(rank, error)
        finally:
            self._turns.end(rank, how)
            self._ended.put(rank)

    def _finish(self) -> None:
        with self._turns.away("finish", self._turns.world_size, "the end of training"):
            pass

    def _fail(self, rank: int, error: BaseException) -> None:
        with self._guard:
            # Once the run is over, what ranks raise is only the way they end.
            if self._error is None and not self._turns.over:
                self._error = (rank, error)
        self._turns.stop()

    def _await_end(self, patience_s: float) -> None:
        """Wait a little for a rank to end."""
        with suppress(Empty):
            self._alive.discard(self._ended.get(timeout=patience_s))

    def _stop(self) -> list[int]:
        """End what still runs; the ranks that could not be ended."""
        self._alive = {rank for rank in self._alive if self._threads[rank].ident is not None}
        # First they are woken where they wait; one that runs on, in a loop of the user's say, is interrupted.
        gentle, patient = time.monotonic() + GENTLE_S, time.monotonic() + GRACE_S
        while self._alive and time.monotonic() < patient:
            self._turns.stop()
            self._await_end(POLL_S)
            if time.monotonic() > gentle:
                for rank in self._alive:
                    _raise_in(self._threads[rank].ident)
        for rank, thread in enumerate(self._threads):
            if thread.ident is not None and rank not in self._alive:
                thread.join(POLL_S)
        for helper in self._turns.helpers():
            while helper.is_alive() and time.monotonic() < patient:
                self._turns.stop()
                helper.join(POLL_S)
        return sorted(self._alive)


def _raise_in(ident: int | None) -> None:
    """Have a thread that runs Python code end at its next instruction; not in an import, which would stay half done."""
    frame = sys._current_frames().get(ident or 0)
    while frame is not None:
        if frame.f_globals.get("__name__") == "importlib._bootstrap":
            return
        frame = frame.f_back
    # A user's loop that meets no other rank looks at no flag of ours and waits at no queue, so nothing else ends it:
    # left alone it would train on beside the next test. Ranks that wait are woken, and never come here.
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(ident or 0), ctypes.py_object(RankEnded))


def _wake_collectives() -> None:
    # Those that wake look at the flag, so it is set before they are woken.
    threaded.ProcessLocalGroup._terminate.set()
    for collective in list(threaded.ProcessLocalGroup._cur_coll_on_pgs.values()):
        for condition in (collective._start_cond, collective._done_cond):
            with condition:
                condition.notify_all()


@contextmanager
def _process_untouched() -> Iterator[None]:
    """Inside, torch.distributed is of the threads; afterwards it is the process's again, with all that was global."""
    if BACKEND not in dist.Backend.backend_list:
        dist.Backend.register_backend(BACKEND, _create, devices=["cpu", "cuda"])
    own, hook, dtype = dist.distributed_c10d._world, sys.excepthook, torch.get_default_dtype()
    with streams_untouched(), warnings.catch_warnings():
        # DDP's word on an argument that torch 2.14 renames; a filter set in a rank would leak into the others.
        warnings.filterwarnings("ignore", message=".*broadcast_buffers.*")
        threaded.ProcessLocalGroup.reset()
        _c10d._set_thread_isolation_mode(True)
        dist.distributed_c10d._world = _World()  # type: ignore[assignment]
        try:
            yield
        finally:
            dist.distributed_c10d._world = own
            _c10d._set_thread_isolation_mode(False)
            threaded.ProcessLocalGroup.reset()
            sys.excepthook = hook
            torch.set_default_dtype(dtype)
