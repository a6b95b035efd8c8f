"""How processes of their own for plugins on trial find a class again."""

import importlib
import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any


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
