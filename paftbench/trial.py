"""One trial, as a process runs it: `python -m paftbench.trial DIR`, also as each rank of torchrun."""

import errno
import logging
import os
import sys
import traceback
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from paftbench.faults.draws import seed_of
from paftbench.process import die_with_parent
from paftbench.ranks.axis import Ranks
from paftbench.ranks.launch import join
from paftbench.records.door import plain
from paftbench.records.failure import Failure
from paftbench.records.trial import DTYPES, Trial
from paftbench.resilience.checkpoints import Saver
from paftbench.store.claim import claim
from paftbench.store.directory import FAILURE, FULL, Planned, read_planned, read_result, write_result
from paftbench.store.files import write_json
from paftbench.store.lease import Lease, LostClaim, inherited
from paftbench.telling import chain_of, reason_of
from paftbench.training import checkpoint
from paftbench.training.loop import Placement, train
from paftbench.training.optimizers import optimizer_of
from paftbench.training.ours import RECORDS, OurClock, ours, part_of
from paftbench.training.recorder import Recorder
from paftbench.training.summary import summary
from paftbench.training.torchrun import Torchrun
from paftbench.training.virtual import Virtual

log = logging.getLogger(__name__)


def run_trial(directory: Path, lease: Lease | None = None) -> int:
    """Run the trial planned in a directory to its `result.json`; 0, or 1 with the reason in `failure.json`.

    Under a `lease` (else the one this process was started under) nothing is written once that is lost: 1 then, too.
    """
    lease = lease or inherited(directory)
    placement: Placement | None = None
    try:
        planned = read_planned(directory)
        group = _join(planned.trial)
        placement = build_placement(planned.trial, group)
        lease = placement.replicas.ranks.gather_objects(lease)[0]
        run_share(planned, placement, directory, lease)
    except Exception as error:
        return _leave_reason(directory, placement, error, lease)
    if group is not None:
        dist.barrier(group)
        dist.destroy_process_group()
    return 0


def run_share(planned: Planned, placement: Placement, directory: Path, lease: Lease | None = None) -> None:
    """Train this process's ranks, from a checkpoint where there is one; the process of the first writes the result."""
    trial, ranks = planned.trial, placement.replicas.ranks
    recorder = Recorder(directory, ranks, [fault.name for fault in trial.faults], lease)
    saver = checkpoint.saver_of(directory, ranks, lease) if trial.checkpoint.every else None
    start = _continue(placement, recorder, saver)

    @ours(RECORDS)
    def save(step: int) -> None:
        assert saver is not None
        recorder.flush()
        state = {"placement": placement.state_dict(), "history": recorder.history}
        checkpoint.save(saver, step, state, recorder.extents())

    train(trial, placement, recorder, start=start, save=save)
    with ours(RECORDS):
        recorder.close()
        golden = None if planned.golden_id is None else read_result(directory.parent / planned.golden_id)
        result = summary(planned, placement, recorder, directory, golden)
        if ranks.hosts_first:
            write_result(directory, result, check=None if lease is None else lease.check)
            checkpoint.discard(directory)


@ours(RECORDS)
def _continue(placement: Placement, recorder: Recorder, saver: Saver | None) -> int:
    """Go on from the checkpoint, if there is one and all rows of before are; the number of completed steps."""
    saved = None if saver is None else checkpoint.load(saver)
    missing = recorder.begin(None if saved is None else saved.rows)
    if saved is None:
        return 0
    if missing is not None:
        log.warning("starting over: %s", missing)
        recorder.begin()
        return 0
    placement.load_state_dict(saved.state["placement"])
    recorder.history = saved.state["history"]
    log.info("continuing from step %d", saved.step)
    return saved.step


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
    return join(backend, trial.timeout_s)


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
        "faults": trial.faults, "mitigations": trial.mitigations, "fault_seed": trial.faults_seed, "clock": OurClock(),
    }  # fmt: skip
    unused = trial.workload.find_unused_parameters
    if group is not None and trial.processes == trial.world_size:
        placement = Torchrun(
            model, optimizer_of(trial.optimizer), group, exact=trial.exact, find_unused_parameters=unused, **common
        )
        torch.manual_seed(seeds[0])
        return placement
    return Virtual(model, optimizer_of(trial.optimizer), ranks, rank_seeds=seeds, split=unused, **common)


def _leave_reason(directory: Path, placement: Placement | None, error: Exception, lease: Lease | None) -> int:
    """Say why the trial ended, and whether strikes may be to blame; the first process to fail is heard.

    A trial that is another's now ends without a word.
    """
    if any(isinstance(link, LostClaim) for link in chain_of(error)) or not (lease is None or lease.held()):
        return 1
    log.error("the trial failed", exc_info=error)
    part = part_of(error)
    landed = 0 if placement is None else placement.pipeline.injector.counts.landed
    trace = "".join(traceback.format_exception(error))[-4000:]
    failure = Failure(strikes=landed, part=part, reason=reason_of(error), trace=trace)
    if not (directory / FAILURE).exists():
        with suppress(LostClaim):
            try:
                write_json(directory / FAILURE, plain(failure), check=None if lease is None else lease.check)
            except OSError as full:
                if full.errno != errno.ENOSPC:
                    raise
                # Renaming needs no room.
                os.replace(directory / FULL, directory / FAILURE)
    return 1


def main() -> int:
    """The command line: one argument, the trial's directory, which is claimed unless whoever started this has it."""
    die_with_parent()
    rank = int(os.environ.get("RANK", 0))
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s rank {rank} %(name)s: %(message)s")
    if len(sys.argv) != 2:
        print("paftbench: error: usage: python -m paftbench.trial DIR", file=sys.stderr)
        return 2
    directory = Path(sys.argv[1])
    with ExitStack() as held:
        lease = inherited(directory)
        if lease is None and rank == 0 and directory.is_dir():
            try:
                lease = held.enter_context(claim(directory)).lease
            except ValueError as error:
                print(f"paftbench: error: {error}", file=sys.stderr)
                return 2
        return run_trial(directory, lease)


if __name__ == "__main__":
    sys.exit(main())
