"""Whether a mitigation does the same in several processes as in one."""

import json
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import torch

from paftbench.ranks.axis import Ranks
from paftbench.ranks.launch import as_rank, command, environment
from paftbench.verify.member import train
from paftbench.verify.mitigation_case import STEPS, MitigationCase
from paftbench.verify.processes import address_of
from paftbench.verify.promise import Broken, NotTried, expect, promise
from paftbench.verify.small_training import same_numbers
from paftbench.verify.variants import label_of, variants

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
    first, *others = _in_processes(case, world_size, settings)
    for number, fields in enumerate(settings):
        where = f" with {', '.join(label_of(fields))}" if fields else ""
        for other in others:
            alike = first[number]["decisions"] == other[number]["decisions"]
            got = "processes of which one synchronises or decides otherwise"
            expect(alike, f"all processes to decide alike{where}", got)
        alone = train(case.cls, fields, STEPS, Ranks.virtual(world_size, exact=True))
        rows = torch.cat([process[number]["rows"] for process in (first, *others)])
        same = same_numbers([rows], [alone["rows"]])
        expect(same, f"the bits of one process in {PROCESSES}{where}", "others")


def _in_processes(case: MitigationCase, world_size: int, settings: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Every process's results; `Broken` where one fails, or waits for a collective that another does not reach."""
    with tempfile.TemporaryDirectory(prefix="paftbench-") as scratch:
        folder = Path(scratch)
        started = []
        for process in range(PROCESSES):
            task = {
                **address_of(case.cls), "settings": settings, "steps": STEPS, "world_size": world_size,
                "out": str(folder / f"{process}.pt"), "limit_s": LIMIT_S / 2,
            }  # fmt: skip
            (folder / f"{process}.json").write_text(json.dumps(task))
            own = command("paftbench.verify.member", str(folder / f"{process}.json"))
            with (folder / f"{process}.txt").open("w") as log:
                ranks = environment(OMP_NUM_THREADS="1", **as_rank(process, PROCESSES, str(folder / "meeting")))
                started.append(subprocess.Popen(own, env=ranks, stdout=log, stderr=log))
        try:
            codes = [member.wait(LIMIT_S) for member in started]
        except subprocess.TimeoutExpired:
            raise Broken(f"expected {PROCESSES} processes to finish, got one that waits for another") from None
        finally:
            for member in started:
                member.kill()
                member.wait()
        for number, code in enumerate(codes):
            if code != 0:
                last = ((folder / f"{number}.txt").read_text().strip().splitlines() or [f"exit code {code}"])[-1]
                raise Broken(f"expected {PROCESSES} processes to train together, got {last}")
        return [torch.load(folder / f"{number}.pt", weights_only=True) for number in range(PROCESSES)]
