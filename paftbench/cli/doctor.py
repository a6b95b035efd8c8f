"""`paftbench doctor`: does this machine have what trials need, and what to do if not."""

import json
import os
import socket
import subprocess
import tempfile
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from threading import Thread
from typing import Annotated, Any

import typer

from paftbench.process import ending_of
from paftbench.ranks.launch import INTERFACE, LOOPBACK, chosen_interface, start_ranks
from paftbench.telling import reason_of

TIMEOUT_S = 120
NAME_S = 5.0  # to look up this machine's name


@dataclass(frozen=True, kw_only=True)
class Check:
    """One finding; `todo` says what helps where it is not ok."""

    name: str
    ok: bool
    found: str
    todo: str = ""


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="The results directory to check.")] = Path(
        "results/runs"
    ),
) -> int:
    """Check torch, collectives, DDP's hook, ports, the results directory and data sets."""
    checks = [torch_pair(), free_port(), host_name(), interface(), results_directory(out), *ranks(), *data_sets()]
    if as_json:
        typer.echo(json.dumps([asdict(check) for check in checks], indent=1))
    else:
        for check in checks:
            typer.echo(f"{'ok  ' if check.ok else 'FAIL'}  {check.name}: {check.found}")
            if check.todo:
                typer.echo(f"      {check.todo}")
    return 0 if all(check.ok for check in checks) else 1


def torch_pair() -> Check:
    """torch and torchvision fit together if torchvision's compiled operators load."""
    name, todo = "torch and torchvision", "install a matching pair, for example torch 2.14.1 with torchvision 0.29.1"
    try:
        import torch
        import torchvision

        boxes = torch.tensor([[0.0, 0.0, 1.0, 1.0]])
        torch.ops.torchvision.nms(boxes, torch.ones(1), 0.5)
    except (ImportError, RuntimeError, AttributeError) as error:
        return Check(name=name, ok=False, found=reason_of(error), todo=todo)
    return Check(name=name, ok=True, found=f"torch {torch.__version__}, torchvision {torchvision.__version__}")


def free_port() -> Check:
    """Ranks listen for each other on this machine's own address."""
    try:
        with socket.create_server((LOOPBACK, 0)):
            return Check(name="free port", ok=True, found=f"{LOOPBACK} has one")
    except OSError as error:
        todo = f"allow processes to listen on {LOOPBACK} (is the interface up? `ip link set lo up`)"
        return Check(name="free port", ok=False, found=reason_of(error), todo=todo)


def host_name() -> Check:
    """Ranks that paftbench starts on one machine do not ask for it; what users start by hand does."""
    name, found = socket.gethostname(), list[str]()

    def look_up() -> None:
        with suppress(OSError):
            found.extend(str(entry[4][0]) for entry in socket.getaddrinfo(name, None))

    # A name server that does not answer takes its time, and cannot be interrupted.
    asking = Thread(target=look_up, daemon=True)
    asking.start()
    asking.join(NAME_S)
    if found:
        return Check(name="host name", ok=True, found=f"{name} is {found[0]}")
    todo = (
        f"`paftbench run` works without; for your own torchrun on one machine: --local-addr={LOOPBACK} and "
        f"{INTERFACE}=lo in the environment, or a line `{LOOPBACK} {name}` in /etc/hosts"
    )
    return Check(name="host name", ok=True, found=f"{name} does not resolve", todo=todo)


def interface() -> Check:
    """gloo takes the variable for the names of interfaces, and fails where there is none of that name."""
    given, there = os.environ.get(INTERFACE), [name for _, name in socket.if_nameindex()]
    if not given:
        return Check(name=INTERFACE, ok=True, found="not set")
    missing = [name for name in given.split(",") if name not in there]
    if not missing:
        return Check(name=INTERFACE, ok=True, found=given)
    known = f"{given!r}: no interface {missing[0]!r} here, only {', '.join(there)}"
    todo = f"unset {INTERFACE}, or set it to one of them; `paftbench run` uses {chosen_interface()} meanwhile"
    return Check(name=INTERFACE, ok=False, found=known, todo=todo)


def results_directory(out: Path) -> Check:
    """Results need atomic renames and syncs where they are written."""
    from paftbench.store.files import read_json, write_json

    existing = next(path for path in (out, *out.absolute().parents) if path.is_dir())
    name = f"results directory {out}"
    try:
        with tempfile.TemporaryDirectory(dir=existing, prefix=".doctor-") as scratch:
            path = Path(scratch) / "probe.json"
            for number in (1, 2):
                write_json(path, {"number": number})
            ok = read_json(path) == {"number": 2}
        return Check(name=name, ok=ok, found="write, sync and rename work")
    except OSError as error:
        return Check(name=name, ok=False, found=reason_of(error), todo="free some space, or choose another with --out")


def ranks() -> list[Check]:
    """Two ranks under torchrun: a gloo round trip, and a hook that DDP calls."""
    with tempfile.TemporaryDirectory(prefix="paftbench-") as scratch:
        report, log = Path(scratch) / "report.json", Path(scratch) / "log.txt"
        with log.open("wb") as printed:
            launcher = start_ranks(2, "paftbench.cli.rank_check", str(report), log=printed)
        try:
            last = ending_of(launcher.wait(TIMEOUT_S))
        except subprocess.TimeoutExpired:
            last = f"no answer within {TIMEOUT_S} s"
        finally:
            launcher.kill()
            launcher.wait()
        found: dict[str, Any] = json.loads(report.read_text()) if report.is_file() else {}
        said = [line for line in log.read_text(errors="replace").splitlines() if "Error: " in line]
        last = str(found.get("error") or (said[0].strip() if said else last))
    wanted = {
        "gloo": (
            "gloo between 2 processes",
            f"allow connections on {LOOPBACK}; `ip link set lo up` where that interface is down",
        ),
        "hook": ("DDP hook", "use a torch within the range in pyproject.toml"),
    }
    return [
        Check(name=name, ok=True, found="round trip works")
        if found.get(key)
        else Check(name=name, ok=False, found=last, todo=todo)
        for key, (name, todo) in wanted.items()
    ]


def data_sets() -> list[Check]:
    """The embedded sets must load; the others are only reported."""
    from paftbench.workloads.data import KNOWN, data_directory, data_id, files_of

    checks = []
    for name, known in KNOWN.items():
        if known.files and not all(path.is_file() for path in files_of(name, data_directory())):
            argument = " path=FILE" if name == "tokens" else ""
            todo = f"only if you want it: paftbench data {name}{argument}"
            checks.append(Check(name=f"data {name}", ok=True, found="not here", todo=todo))
            continue
        try:
            checks.append(Check(name=f"data {name}", ok=True, found=f"sha256 {data_id(name).sha256[:16]}..."))
        except (LookupError, OSError, ValueError) as error:
            checks.append(Check(name=f"data {name}", ok=False, found=reason_of(error), todo=f"paftbench data {name}"))
    return checks
