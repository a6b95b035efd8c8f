"""What produced a result: versions, source revision, processor and what computes on it.

No host name, no user's paths, no secrets.
"""

import os
import platform
import subprocess
import sys
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from paftbench.environment.processor import processor, switches

_PACKAGES = (
    "paftbench", "torch", "torchvision", "transformers", "tokenizers", "numpy", "scipy", "scikit-learn", "pandas",
)  # fmt: skip
_ROOT = Path(__file__).resolve().parents[2]  # of a clone; where the package is installed, no git knows it


@cache
def environment() -> dict[str, Any]:
    """Everything a reader needs to judge whether two results may be compared bit by bit; `machine.differs` does."""
    import torch

    from paftbench.environment.dispatch import bits, libraries

    gpus = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    return {
        "versions": {name: _version(name) for name in _PACKAGES},
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.release()} {platform.machine()}",
        "processor": processor(),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "libraries": libraries(),
        "bits": bits(),
        "switches": switches(),
        "cpus": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "threads": torch.get_num_threads(),
        "cuda": torch.version.cuda,
        "gpus": gpus,
        "git": _revision(),
        "argv": [_without_directories(argument) for argument in sys.argv],
    }


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _revision() -> dict[str, Any] | None:
    """Commit and whether the tree differs from it; `None` for an installed package or without git."""
    if not (_ROOT / ".git").exists():
        return None
    try:
        commit = _git("rev-parse", "HEAD")
        return {"sha": commit, "dirty": bool(_git("status", "--porcelain", "--untracked-files=no"))}
    except (OSError, subprocess.SubprocessError):
        return None


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=_ROOT, capture_output=True, text=True, timeout=10, check=True)
    return done.stdout.strip()


def _without_directories(argument: str) -> str:
    """A path keeps its last part only: directories name users and machines. Bytes that are no text are written out."""
    argument = argument.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    key, equals, value = argument.rpartition("=")
    return f"{key}{equals}{Path(value).name}" if value.startswith(("/", "~", ".")) else argument
