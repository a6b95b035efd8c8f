"""Functions run as the ranks of a gloo group, in fresh processes forked from the engine's warm server."""

import pickle
import tempfile
import traceback
import warnings
from collections.abc import Callable
from datetime import timedelta
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from support.warm import context

LIMIT_S = 60.0


class RankError(AssertionError):
    """A rank raised; the message is its traceback."""


def together(function: Callable[..., Any], world_size: int, *args: Any, limit_s: float = LIMIT_S) -> list[Any]:
    """`function(*args)` on every rank of a group of `world_size` processes; its results in rank order.

    Whatever warns in a rank fails it. `RankError` with the traceback of the first rank that failed; no process is left.
    """
    outcomes = attempt(function, world_size, *args, limit_s=limit_s)
    failed = [f"rank {rank}: {outcome[1]}" for rank, outcome in enumerate(outcomes) if outcome[0] != "value"]
    if failed:
        raise RankError("\n".join(failed))
    return [outcome[1] for outcome in outcomes]


def attempt(
    function: Callable[..., Any], world_size: int, *args: Any, limit_s: float = LIMIT_S
) -> list[tuple[str, Any]]:
    """As `together`, but gives ("value", result), ("raised", traceback) or ("died", exit code) for each rank.

    A rank that does not end by itself fails the test.
    """
    server = context()
    with tempfile.TemporaryDirectory() as folder:
        started = []
        for rank in range(world_size):
            here, there = server.Pipe(duplex=False)
            process = server.Process(target=_rank, args=(function, args, rank, world_size, Path(folder), there))
            process.start()
            there.close()
            started.append((process, here))
        outcomes = []
        for _, here in started:
            outcomes.append(_outcome(here, limit_s))
            here.close()
        wedged = []
        for rank, (process, _) in enumerate(started):
            process.join(10.0 if outcomes[rank][0] != "silent" else 0.0)
            if process.is_alive():
                wedged.append(rank)
                process.kill()
                process.join()
        assert not wedged, f"ranks {wedged} had to be killed: {outcomes}"
        return [
            outcome if outcome[0] != "died" else ("died", process.exitcode)
            for outcome, (process, _) in zip(outcomes, started, strict=True)
        ]


def _outcome(here: Connection, limit_s: float) -> tuple[str, Any]:
    if not wait([here], limit_s):
        return "silent", f"no answer within {limit_s} s"
    try:
        answer: tuple[str, Any] = pickle.loads(here.recv_bytes())
        return answer
    except EOFError:
        return "died", None


def _rank(
    function: Callable[..., Any], args: tuple[Any, ...], rank: int, world_size: int, folder: Path, there: Connection
) -> None:
    import torch
    import torch.distributed as dist

    from paftbench.process import die_with_parent

    die_with_parent()
    torch.set_num_threads(1)
    warnings.simplefilter("error")
    store = dist.FileStore(str(folder / "store"), world_size)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=world_size, timeout=timedelta(seconds=LIMIT_S))
    try:
        answer = ("value", function(*args))
    except Exception:
        there.send_bytes(pickle.dumps(("raised", traceback.format_exc())))
        return
    dist.barrier()
    dist.destroy_process_group()
    # Plain bytes: torch's own reducer would hand over files of a process that may be gone by then.
    there.send_bytes(pickle.dumps(answer))
