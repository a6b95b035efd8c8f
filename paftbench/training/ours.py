"""Whose an exception is: out of a fault, a mitigation, measuring or records it is ours, whatever was struck before."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

from paftbench.faults.injector import InjectionError
from paftbench.step.metrics import Clock
from paftbench.telling import chain_of

RECORDS = "records"
# Sections of a step that are no part of the training.
_PARTS = {"inject": "a fault", "mitigate": "a mitigation", "aggregate": "a mitigation", "measure": "measuring"}
_MARK = "_paftbench_part"
_LOST_PEER = ("gloo/transport", "Connection closed by peer", "Connection reset by peer")
_MEMORY = ("out of memory", "can't allocate memory", "cannot allocate memory")


@contextmanager
def ours(part: str) -> Iterator[None]:
    """What is raised inside, or by the function so decorated, is that part's."""
    try:
        yield
    except Exception as error:
        # A rank that is gone is felt by all others wherever they wait for it, which says nothing of that place.
        peer = any(text in str(link) for link in chain_of(error) for text in _LOST_PEER)
        if not peer and not hasattr(error, _MARK):
            setattr(error, _MARK, part)
        raise


class OurClock(Clock):
    """A trial's clock, whose sections say whose an exception is, too."""

    @contextmanager
    def section(self, name: str) -> Iterator[None]:
        """Time what happens inside as `name`."""
        with super().section(name):
            if name in _PARTS:
                with ours(_PARTS[name]):
                    yield
            else:
                yield


def part_of(error: BaseException) -> str | None:
    """Which part of ours, or of the machine, an exception came out of; None for the training's own."""
    for link in chain_of(error):
        if isinstance(link, MemoryError) or _says_memory(link):
            return "memory"
        if isinstance(link, InjectionError):
            return _PARTS["inject"]
        if (part := getattr(link, _MARK, None)) is not None:
            return str(part)
        if isinstance(link, OSError) and link.errno is not None:
            return f"the machine: {os.strerror(link.errno)}"
    return None


def _says_memory(error: BaseException) -> bool:
    """torch has no class of its own for memory that the processor's allocator does not get."""
    return isinstance(error, RuntimeError) and any(text in str(error).lower() for text in _MEMORY)
