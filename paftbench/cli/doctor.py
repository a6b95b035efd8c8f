"""`paftbench doctor`: does this machine have what trials need, and what to do if not."""

import json
import os
import socket
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

TIMEOUT_S = 120


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
    checks = [torch_pair(), free_port(), results_directory(out), *ranks(), *data_sets()]
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
        return Check(name=name, ok=False, found=_line(error), todo=todo)
    return Check(name=name, ok=True, found=f"torch {torch.__version__}, torchvision {torchvision.__version__}")


def free_port() -> Check:
    """torchrun needs a port of its own on this machine."""
    try:
        with socket.create_server(("localhost", 0)):
            return Check(name="free port", ok=True, found="localhost has one")
    except OSError as error:
        return Check(name="free port", ok=False, found=_line(error), todo="allow processes to listen on localhost")


def results_directory(out: Path) -> Check:
    """Results need atomic renames and syncs where they are written."""
    from paftbench.files import read_json, write_json

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
        return Check(name=name, ok=False, found=_line(error), todo="free some space, or choose another with --out")


def ranks() -> list[Check]:
    """Two ranks under torchrun: a gloo round trip, and a hook that DDP calls."""
    with tempfile.TemporaryDirectory(prefix="paftbench-") as scratch:
        report = Path(scratch) / "report.json"
        torchrun = [sys.executable, "-m", "paftbench.engines.agent", "--standalone", "--nproc-per-node", "2"]
        command = [*torchrun, "-m", "paftbench.cli.rank_check", str(report)]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        try:
            done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S)
            last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        except subprocess.TimeoutExpired:
            last = f"no answer within {TIMEOUT_S} s"
        found: dict[str, Any] = json.loads(report.read_text()) if report.is_file() else {}
    wanted = {
        "gloo": (
            "gloo between 2 processes",
            "allow connections on localhost; on odd networks set GLOO_SOCKET_IFNAME=lo",
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
        except (LookupError, OSError) as error:
            checks.append(Check(name=f"data {name}", ok=False, found=_line(error), todo=f"paftbench data {name}"))
    return checks


def _line(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())
