"""What a save costs the step: an asynchronous one of 100 MB against a blocking one, in turns."""

import time
from pathlib import Path
from statistics import median

import torch

from paftbench.ranks.axis import Ranks
from paftbench.resilience.checkpoints import Checkpoints, opened_in

MB, REPEATS = 100, 9


def test_an_asynchronous_save_holds_a_step_up_for_15_percent_of_a_blocking_one(tmp_path: Path) -> None:
    state = {"weights": [torch.randn(MB * 250_000 // 10) for _ in range(10)]}
    seconds: dict[bool, list[float]] = {False: [], True: []}
    savers = {
        way: opened_in(tmp_path / str(way), Ranks.virtual(1), Checkpoints(asynchronous=way, keep=1)) for way in seconds
    }
    for step in range(REPEATS + 1):
        for way, saver in savers.items():
            begun = time.perf_counter()
            saver.save(step, state, {})
            if step:  # the first starts the persisting process and touches its memory
                seconds[way].append(time.perf_counter() - begun)
            if way:
                while saver.in_flight is not None:
                    saver.poll()
                    time.sleep(0.01)
    savers[True].close()
    blocking, stall = median(seconds[False]), median(seconds[True])
    print(f"blocking {blocking * 1e3:.0f} ms, asynchronous {stall * 1e3:.1f} ms: {stall / blocking:.1%}")
    assert stall < 0.15 * blocking
