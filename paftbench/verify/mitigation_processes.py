"""Whether a mitigation does the same in several processes as in one."""

import subprocess
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
import torch.distributed as dist

from paftbench.building import build
from paftbench.ranks.axis import Ranks
from paftbench.ranks.launch import as_rank, join
from paftbench.verify.mitigation_case import STEPS, MitigationCase
from paftbench.verify.planted_fault import planted
from paftbench.verify.processes import Elsewhere
from paftbench.verify.promise import Broken, NotTried, expect, promise
from paftbench.verify.small_training import SmallTraining, same_numbers
from paftbench.verify.variants import label_of, variants

Fields = Mapping[str, Any]
Trained = dict[str, Any]

PROCESSES, SHARE = 2, 2  # so that sums cross processes and rows
LIMIT_S = 60.0


@promise(slow=True)
def processes_decide_alike_and_give_the_bits_of_one(case: MitigationCase) -> None:
    if case.fields:
        raise NotTried("all settings are tried at once")
    world_size = PROCESSES * SHARE
    if world_size not in case.worlds:
        raise NotTried(f"it does not start on {world_size} ranks")
    settings = list(variants(case.cls))
    first, *others = _in_processes(partial(trained_there, case.cls, settings, world_size))
    for number, fields in enumerate(settings):
        where = f" with {', '.join(label_of(fields))}" if fields else ""
        for other in others:
            alike = first[number]["decisions"] == other[number]["decisions"]
            got = "processes of which one synchronises or decides otherwise"
            expect(alike, f"all processes to decide alike{where}", got)
        # Exact sums, on both sides: others differ in bits by how many processes add.
        alone = _trained(case.cls, fields, Ranks.virtual(world_size, exact=True))
        rows = torch.cat([process[number]["rows"] for process in (first, *others)])
        same = same_numbers([rows], [alone["rows"]])
        expect(same, f"the bits of one process in {PROCESSES}{where}", "others")


def trained_there(cls: Any, settings: Sequence[Fields], world_size: int) -> list[Trained]:
    """One process's part: it hosts W / P ranks, and trains once for every setting, in the same order as the others."""
    group = join("gloo", LIMIT_S / 2)  # so that a collective gives up before the one who waits for this process does
    found = [_trained(cls, fields, Ranks.of_group(world_size, group, exact=True)) for fields in settings]
    dist.barrier()
    dist.destroy_process_group()
    return found


def _trained(cls: Any, fields: Fields, ranks: Ranks) -> Trained:
    """What a training decided at each step, and the hosted ranks' parameters at its end."""
    training = SmallTraining([build(cls, fields, cls.name)], [planted()], ranks=ranks)
    pipeline = training.virtual.pipeline
    decisions: list[Any] = []

    def note() -> None:
        measured = pipeline.measured
        decisions.append([measured.synced, measured.period, repr(measured.decision)])

    training.run(STEPS, after=note)
    pipeline.flush()
    return {"decisions": decisions, "rows": torch.cat(training.parameters(), dim=1)}


def _in_processes(work: partial[list[Trained]]) -> list[list[Trained]]:
    """What each process returns; `Broken` where one fails, or waits for a collective that another does not reach."""
    with TemporaryDirectory(prefix="paftbench-") as folder:
        meeting = str(Path(folder) / "meeting")
        started = [Elsewhere(work, **as_rank(process, PROCESSES, meeting)) for process in range(PROCESSES)]
        try:
            return [process.result(LIMIT_S) for process in started]
        except subprocess.TimeoutExpired:
            raise Broken(f"expected {PROCESSES} processes to finish, got one that waits for another") from None
        except ChildProcessError as failed:
            raise Broken(f"expected {PROCESSES} processes to train together, got {failed}") from None
        finally:
            for process in started:
                process.end()
