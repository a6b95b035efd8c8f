"""The persisting process: `python -m paftbench.resilience.persist_main FD`, one per training process, without torch.

It reads orders from its standard input, takes the bytes from the memory behind the descriptor, and answers each. It
ends with the training process; what it had not published then is nowhere.
"""

import mmap
import os
import sys
import time
from collections.abc import Iterator

from paftbench.process import die_with_parent
from paftbench.resilience.fence import Fence
from paftbench.resilience.order import Answer, Order, line_of, order_in
from paftbench.resilience.shelf import Shelf
from paftbench.resilience.unfinished import Unfinished
from paftbench.telling import reason_of

_POLL_S = 0.02


def main() -> int:
    die_with_parent()
    descriptor = int(sys.argv[1])
    for line in iter(sys.stdin.buffer.readline, b""):
        sys.stdout.buffer.write(line_of(_done(order_in(line), descriptor)))
        sys.stdout.buffer.flush()
    return 0


def _done(order: Order, descriptor: int) -> Answer:
    begun = time.monotonic()
    try:
        published = _saved(order, descriptor)
    except Exception as error:
        return Answer(step=order.step, seconds=time.monotonic() - begun, error=reason_of(error))
    return Answer(step=order.step, seconds=time.monotonic() - begun, published=published)


def _saved(order: Order, descriptor: int) -> str | None:
    fence = Fence(folder=order.path, generation=order.generation)
    unfinished = Unfinished(folder=order.path, step=order.step, fence=fence)
    with mmap.mmap(descriptor, order.size, access=mmap.ACCESS_READ) as memory, memoryview(memory) as view:
        unfinished.add(order.share, _pieces(view))
    if not order.publishes:
        return None
    _await(unfinished, order)
    path = unfinished.publish(order.shares, order.world_size, order.more)
    Shelf(folder=order.path).prune(order.keep, fence, unfinished.at)
    return path.name


def _pieces(view: memoryview) -> Iterator[memoryview]:
    yield view


def _await(unfinished: Unfinished, order: Order) -> None:
    """Until every share is durable: the other processes' come in their own time, or never."""
    deadline = time.monotonic() + order.patience_s
    while len(unfinished.marks(order.shares)) < len(order.shares) and time.monotonic() < deadline:
        time.sleep(_POLL_S)


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)
