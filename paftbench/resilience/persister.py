"""The training process's end of its persisting process: a buffer that both map, one save in flight."""

import mmap
import os
import select
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from typing import Final

from paftbench.process import announced, ending_of
from paftbench.resilience.order import Answer, Order, answer_in, line_of
from paftbench.resilience.share import Snapshot

MODULE: Final = "paftbench.resilience.persist_main"


class Persister:
    """Saves snapshots without holding up the caller longer than a copy takes, unless the last save is not done yet.

    A process that has died is started again with the next save.
    """

    def __init__(self) -> None:
        self._descriptor = _memory()
        self._mapped: mmap.mmap | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._pending: Order | None = None

    def submit(self, snapshot: Snapshot, order: Order) -> Answer | None:
        """Take a snapshot and have it saved; how the save before ended, where it had not been asked for.

        Waits for that one first, since the buffer is its: the back-pressure of a disk slower than the training.
        """
        before = self.wait()
        snapshot.copy_into(self._buffer(order.size))
        for _ in range(2):  # a process that died since the last answer is found out by writing to it
            process = self._running()
            assert process.stdin is not None
            with suppress(BrokenPipeError):
                process.stdin.write(line_of(order))
                process.stdin.flush()
                break
            self._end()
        self._pending = order
        return before

    def poll(self) -> Answer | None:
        """How the save in flight ended; None while it has not, or where there is none."""
        if self._pending is None or not self._readable():
            return None
        return self.wait()

    def wait(self) -> Answer | None:
        """How the save in flight ends; None where there is none."""
        if self._pending is None:
            return None
        order, self._pending, begun = self._pending, None, time.monotonic()
        process = self._running()
        assert process.stdout is not None
        line = process.stdout.readline()
        if line.endswith(b"\n"):
            return answer_in(line)
        process.wait()
        said = ending_of(process.returncode)
        self._end()
        return Answer(
            step=order.step, seconds=time.monotonic() - begun, error=f"the persisting process ended in mid-save: {said}"
        )

    @property
    def in_flight(self) -> int | None:
        """The step whose save has not been answered."""
        return None if self._pending is None else self._pending.step

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    def close(self) -> Answer | None:
        """Let the save in flight end, and the process."""
        last = self.wait()
        self._end()
        self._unmap()
        os.close(self._descriptor)
        return last

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-m", MODULE, str(self._descriptor)],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, pass_fds=(self._descriptor,),
                env={**os.environ, **announced()},
            )  # fmt: skip
        return self._process

    def _readable(self) -> bool:
        process = self._running()
        assert process.stdout is not None
        return bool(select.select([process.stdout], [], [], 0)[0])

    def _end(self) -> None:
        if self._process is None:
            return
        process, self._process = self._process, None
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with suppress(BrokenPipeError):
                    pipe.close()
        process.wait()

    def _buffer(self, size: int) -> memoryview:
        if self._mapped is None or len(self._mapped) < size:
            self._unmap()
            os.ftruncate(self._descriptor, size)
            self._mapped = mmap.mmap(self._descriptor, size)
        return memoryview(self._mapped)[:size]

    def _unmap(self) -> None:
        mapped, self._mapped = self._mapped, None
        if mapped is not None:
            mapped.close()


def _memory() -> int:
    """A descriptor of memory that goes when the last process that holds it ends, however it ends."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("paftbench-checkpoint")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())
