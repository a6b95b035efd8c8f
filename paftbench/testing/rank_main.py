"""A rank as a process: `python -m paftbench.testing.rank_main FOLDER` under torchrun."""

import faulthandler
import os
import signal
import sys
import time
import traceback
from pathlib import Path

from paftbench.process import die_with_parent
from paftbench.ranks.launch import join
from paftbench.testing.shipping import FAILURE, OUTCOME, PARCEL, PID, STACK, Parcel, found, leave


def main(folder: Path) -> int:
    """Run the rank on the task in the folder, and leave its outcome, or why it failed, there."""
    die_with_parent()
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    with (folder / f"{STACK}{rank}").open("w") as stack:
        # Asked by the test when time is up: says where this rank stands.
        faulthandler.register(signal.SIGUSR1, stack, all_threads=False)
        (folder / f"{PID}{rank}").write_text(str(os.getpid()))
        return _run(folder, rank, world_size)


def _run(folder: Path, rank: int, world_size: int) -> int:
    import torch
    import torch.distributed as dist

    from paftbench.testing.rank import Owners, RankProgress, run_rank

    torch.set_num_threads(1)
    progress = RankProgress()

    def finish() -> None:
        dist.barrier()

    try:
        parcel: Parcel = found(folder / PARCEL)
        task, limit_s = parcel.open()
        join("gloo", limit_s)
        outcome = run_rank(task, rank, finish, progress, Owners())
    except BaseException as error:
        failure = {
            "skipped": str(error) if type(error).__name__ == "Skipped" else None,  # pytest's, which cannot be pickled
            "time": time.time(),
            "progress": str(progress),
            "error": f"{type(error).__name__}: {error}",
            "traceback": traceback.format_exc(),
        }
        leave(folder / f"{FAILURE}{rank}", failure)
        return 1
    leave(folder / f"{OUTCOME}{rank}", outcome)
    dist.barrier()
    dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
