"""Ctrl-C as a request that a loop looks at, so that it cannot fall between two lines that belong together."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

_STOPPING = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def deferred() -> Iterator[Callable[[], bool]]:
    """Inside, Ctrl-C and SIGTERM only make the function given true; at the end they are a `KeyboardInterrupt`.

    A signal that is ignored stays so. Python handles signals in the main thread only: elsewhere nothing is deferred.
    """
    asked = False

    def ask(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        asked = True

    heard = _STOPPING if threading.current_thread() is threading.main_thread() else ()
    before = {number: signal.signal(number, ask) for number in heard if signal.getsignal(number) != signal.SIG_IGN}
    try:
        yield lambda: asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if asked:
        raise KeyboardInterrupt
