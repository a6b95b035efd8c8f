"""Processes of their own for plugins on trial: started as this one was, and how they find a class again."""

import importlib
import inspect
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from paftbench.process import announced


def command(module: str, *arguments: str) -> list[str]:
    """Runs a module with this interpreter, whatever lies in the current directory."""
    return [sys.executable, "-P", "-m", module, *arguments]


def environment(**own: str) -> dict[str, str]:
    """This process's, for a child that imports from the same places and dies with this process."""
    return {**os.environ, **announced(), "PYTHONPATH": os.pathsep.join(sys.path), **own}


def address_of(cls: type) -> dict[str, str | None]:
    """Where another process finds a plugin class, ready for JSON."""
    file = inspect.getfile(cls) if cls.__module__.startswith("paftbench_plugin_") else None
    return {"file": file, "module": cls.__module__, "class": cls.__qualname__}


def class_at(address: Mapping[str, Any]) -> Any:
    """The inverse of `address_of`."""
    from paftbench.plugins import load_file

    if address["file"] is not None:
        load_file(Path(address["file"]))
    return getattr(importlib.import_module(address["module"]), address["class"])
