"""One of the processes in which a mitigation is tried: `python -m paftbench.verify.member TASK.json`.

A process hosts W / P ranks and trains once for every setting of the mitigation, in the same order as the others.
"""

import json
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from paftbench.plugins import build
from paftbench.process import die_with_parent
from paftbench.ranks.axis import Ranks
from paftbench.ranks.launch import join
from paftbench.verify.planted_fault import planted
from paftbench.verify.processes import class_at
from paftbench.verify.small_training import SmallTraining


def train(cls: Any, fields: dict[str, Any], steps: int, ranks: Ranks) -> dict[str, Any]:
    """What a training decided at each step, and the hosted ranks' parameters at its end."""
    training = SmallTraining([build(cls, fields, cls.name)], [planted()], ranks=ranks)
    pipeline = training.virtual.pipeline
    decisions: list[Any] = []

    def note() -> None:
        measured = pipeline.measured
        decisions.append([measured.synced, measured.period, json.dumps(measured.decision)])

    training.run(steps, after=note)
    pipeline.flush()
    return {"decisions": decisions, "rows": torch.cat(training.parameters(), dim=1)}


def main() -> None:
    """The command line: one argument, the task's file; the results go where it says."""
    die_with_parent()
    task = json.loads(Path(sys.argv[1]).read_text())
    torch.set_num_threads(1)
    cls = class_at(task)
    group = join("gloo", task["limit_s"])
    found = [
        train(cls, fields, task["steps"], Ranks.of_group(task["world_size"], group, exact=True))
        for fields in task["settings"]
    ]
    torch.save(found, task["out"])
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
