"""One trial, as a process runs it: `python -m paftbench.trial DIR`, also as each rank of torchrun."""

import errno
import logging
import os
import sys
import traceback
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from paftbench import checkpoint
from paftbench.config import DTYPES, Trial
from paftbench.draws import seed_of
from paftbench.files import write_json
from paftbench.injector import InjectionError
from paftbench.metrics import Clock
from paftbench.optimizers import optimizer_of
from paftbench.process import FULL_DISK, die_with_parent
from paftbench.ranks import Ranks
from paftbench.records import Recorder
from paftbench.results import summary
from paftbench.store import FAILURE, RESULT, Planned, read_planned, read_result
from paftbench.torchrun import Torchrun
from paftbench.train import Placement, train
from paftbench.virtual import Virtual

log = logging.getLogger(__name__)


def run_trial(directory: Path) -> int:
    """Run the trial planned in a directory to its `result.json`; 0, or 1 with the reason in `failure.json`.

    `FULL_DISK` where there is no room left for either.
    """
    placement: Placement | None = None
    try:
        planned = read_planned(directory)
        group = _join(planned.trial)
        placement = build_placement(planned.trial, group)
        _run(planned, placement, directory)
    except Exception as error:
        log.exception("the trial failed")
        return _leave_reason(directory, placement, error)
    if group is not None:
        dist.barrier(group)
        dist.destroy_process_group()
    return 0


def _run(planned: Planned, placement: Placement, directory: Path) -> None:
    trial, ranks = planned.trial, placement.replicas.ranks
    recorder = Recorder(directory, ranks, [fault.name for fault in trial.faults])
    saved = checkpoint.load(directory, ranks)
    start = 0
    if saved is not None:
        start, state = saved
        placement.load_state_dict(state["placement"])
        recorder.history = state["history"]
        log.info("continuing from step %d", start)
    recorder.begin(start)

    def save(step: int) -> None:
        recorder.flush()
        checkpoint.save(directory, step, ranks, {"placement": placement.state_dict(), "history": recorder.history})

    train(trial, placement, recorder, start=start, save=save)
    golden = None if planned.golden_id is None else read_result(directory.parent / planned.golden_id)
    result = summary(planned, placement, recorder, directory, golden)
    if ranks.hosts_first:
        write_json(directory / RESULT, result)
        checkpoint.discard(directory)


def _join(trial: Trial) -> dist.ProcessGroup | None:
    """The process group of a torchrun trial."""
    if trial.placement == "virtual":
        return None
    if "RANK" not in os.environ:
        raise RuntimeError(
            f"placement torchrun: start this trial with torchrun, {trial.processes} processes in all, not directly"
        )
    if int(os.environ["WORLD_SIZE"]) != trial.processes:
        raise RuntimeError(f"procs: the trial wants {trial.processes} processes, got {os.environ['WORLD_SIZE']}")
    if trial.device == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    backend = "nccl" if trial.device == "cuda" else "gloo"
    dist.init_process_group(backend, timeout=timedelta(seconds=trial.timeout_s))
    group = dist.group.WORLD
    assert group is not None
    return group


def build_placement(trial: Trial, group: dist.ProcessGroup | None) -> Placement:
    """The replicas of this process, with seeds that make every placement start from the same bits."""
    if trial.device == "cpu":
        torch.set_num_threads(1)
    device = torch.device("cpu")
    if trial.device == "cuda":
        device = torch.device("cuda", torch.cuda.current_device())
    torch.manual_seed(seed_of("model", trial.seed))
    model = trial.workload.model().to(device=device, dtype=DTYPES[trial.precision])
    if group is None:
        ranks = Ranks.virtual(trial.world_size, exact=trial.exact)
    else:
        ranks = Ranks.of_group(trial.world_size, group, exact=trial.exact)
    seeds = [seed_of("rank", trial.seed, rank) for rank in ranks.local]
    common: dict[str, Any] = {
        "faults": trial.faults, "mitigations": trial.mitigations, "fault_seed": trial.faults_seed, "clock": Clock(),
    }  # fmt: skip
    unused = trial.workload.find_unused_parameters
    if group is not None and trial.processes == trial.world_size:
        placement = Torchrun(
            model, optimizer_of(trial.optimizer), group, exact=trial.exact, find_unused_parameters=unused, **common
        )
        torch.manual_seed(seeds[0])
        return placement
    return Virtual(model, optimizer_of(trial.optimizer), ranks, rank_seeds=seeds, split=unused, **common)


def _leave_reason(directory: Path, placement: Placement | None, error: Exception) -> int:
    """Say why the trial ended, and whether strikes may be to blame; the first process to fail is heard."""
    ours = isinstance(error, InjectionError | MemoryError | torch.OutOfMemoryError | OSError)
    landed = 0 if placement is None or ours else placement.pipeline.injector.counts.landed
    reason = "".join(traceback.format_exception_only(error)).strip()
    if not (directory / FAILURE).exists():
        try:
            trace = traceback.format_exc()[-4000:]
            write_json(directory / FAILURE, {"strikes": landed, "reason": reason, "trace": trace})
        except OSError as full:
            if full.errno != errno.ENOSPC:
                raise
            return FULL_DISK
    return 1


def main() -> int:
    """The command line: one argument, the trial's directory."""
    die_with_parent()
    rank = os.environ.get("RANK", "0")
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s rank {rank} %(name)s: %(message)s")
    if len(sys.argv) != 2:
        print("paftbench: error: usage: python -m paftbench.trial DIR", file=sys.stderr)
        return 2
    return run_trial(Path(sys.argv[1]))


if __name__ == "__main__":
    sys.exit(main())
