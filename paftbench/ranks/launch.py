"""The one place that starts processes of ours on this machine, and in which ranks among them meet.

Ranks of one machine meet in a file and talk over the loopback interface: no host name is looked up, and nothing of
theirs listens on any other address.
"""

import os
import socket
import subprocess
import sys
from datetime import timedelta
from typing import IO, TYPE_CHECKING

from paftbench.process import announced

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

LOOPBACK = "127.0.0.1"
INTERFACE = "GLOO_SOCKET_IFNAME"  # gloo's own variable; without it gloo looks the host name up
_MEETING = "PAFTBENCH_MEETING"
AGENT = "paftbench.ranks.agent"
_OF_TORCHRUN = "PET_"  # its flags as variables: those of a launcher around this process are not meant for ours


def command(module: str, *arguments: str) -> list[str]:
    """Runs a module with this interpreter, whatever lies in the current directory."""
    return [sys.executable, "-P", "-m", module, *arguments]


def environment(**own: str) -> dict[str, str]:
    """This process's, for a child that imports from the same places and dies with this process."""
    inherited = {key: value for key, value in os.environ.items() if not key.startswith(_OF_TORCHRUN)}
    network = {INTERFACE: chosen_interface()}
    return {**inherited, **announced(), **network, "PYTHONPATH": os.pathsep.join(sys.path), **own}


def chosen_interface() -> str:
    """The network interfaces that ranks of this machine use: the user's where they exist, else the loopback one."""
    given = os.environ.get(INTERFACE, "")
    there = [name for _, name in socket.if_nameindex()]
    if given and all(name in there for name in given.split(",")):
        return given
    return next((name for name in there if name in ("lo", "lo0")), "lo")


def start_ranks(processes: int, module: str, *arguments: str, log: IO[bytes], **own: str) -> "subprocess.Popen[bytes]":
    """torchrun with so many ranks that run a module, in a session of its own; what they print goes to `log`."""
    return subprocess.Popen(
        command(AGENT, str(processes), module, *arguments), stdin=subprocess.DEVNULL, stdout=log,
        stderr=subprocess.STDOUT, start_new_session=True, env=environment(OMP_NUM_THREADS="1", **own),
    )  # fmt: skip


def as_rank(rank: int, world_size: int, meeting: str) -> dict[str, str]:
    """What to add to the environment of a process that is to `join` as a rank; `meeting` is a file of theirs alone."""
    return {"RANK": str(rank), "WORLD_SIZE": str(world_size), _MEETING: meeting}


def join(backend: str, limit_s: float) -> "ProcessGroup":
    """Meet the other ranks; `limit_s` is the time-out of every collective.

    Ranks that another launcher has started, on several machines perhaps, meet where that one says.
    """
    import torch.distributed as dist

    limit = timedelta(seconds=limit_s)
    meeting = os.environ.pop(_MEETING, None)
    if meeting is None:
        dist.init_process_group(backend, timeout=limit)
    else:
        rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        store = dist.FileStore(meeting, world_size)
        dist.init_process_group(backend, store=store, rank=rank, world_size=world_size, timeout=limit)
    group = dist.group.WORLD
    assert group is not None
    return group


def torchrun_arguments(processes: int, folder: str, module: str, *arguments: str) -> list[str]:
    """torchrun's own command line for ranks of this machine, which meet in files of `folder`; sets their variables."""
    os.environ[_MEETING] = os.path.join(folder, "ranks")
    # Else torchrun opens a store of its own, on every address, for ranks that would ask for it.
    os.environ["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"
    meeting = ["--rdzv-backend=c10d", "--rdzv-conf=store_type=file", f"--rdzv-endpoint={folder}/agents"]
    where = ["--nnodes=1", f"--nproc-per-node={processes}", "--rdzv-id=ranks", f"--local-addr={LOOPBACK}"]
    return [*where, *meeting, "--max-restarts=0", "--no-python", *command(module, *arguments)]
