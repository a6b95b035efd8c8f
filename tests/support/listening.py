"""A rank that meets the others and writes down which of its sockets, and of its launcher's, listen where."""

import json
import os
import sys
from pathlib import Path

from paftbench.process import die_with_parent
from paftbench.ranks.launch import join

LISTEN = "0A"


def listening(pid: int) -> list[str]:
    """Hexadecimal local addresses of the sockets that a process listens on."""
    sockets = set()
    for name in Path(f"/proc/{pid}/fd").iterdir():
        target = os.readlink(name) if name.is_symlink() else ""
        if target.startswith("socket:["):
            sockets.add(target.removeprefix("socket:[").rstrip("]"))
    found = []
    for table in ("tcp", "tcp6"):
        rows = [line.split() for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]]
        found += [row[1].partition(":")[0] for row in rows if row[3] == LISTEN and row[9] in sockets]
    return found


def main(folder: Path) -> None:
    import torch
    import torch.distributed as dist

    die_with_parent()
    group = join("gloo", 60.0)
    total = torch.ones(1)
    dist.all_reduce(total)
    second = dist.new_group(use_local_synchronization=True)
    dist.all_reduce(total, group=second)
    found = {"sum": float(total), "own": listening(os.getpid()), "launcher": listening(os.getppid())}
    (folder / f"{dist.get_rank(group)}.json").write_text(json.dumps(found))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
