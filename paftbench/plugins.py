"""Plugins: fault models, mitigations and workloads, found by entry point or given as files.

A plugin is a frozen dataclass whose class attribute `name` is what users write; its fields are what they may set.
"""

import hashlib
import importlib.util
import inspect
import sys
from collections.abc import Mapping
from itertools import takewhile
from pathlib import Path
from typing import Any

from paftbench import installed
from paftbench.building import build as build
from paftbench.building import field_values as field_values
from paftbench.errors import Missing, Refused
from paftbench.suggest import brief, did_you_mean

KINDS = installed.GROUPS

from_files: dict[str, dict[str, Any]] = {kind: {} for kind in KINDS}  # plugins of the user's files, by kind and name


def known(kind: str) -> dict[str, type]:
    """Every plugin of a kind that can be imported, by name; files given by the user win over installed ones."""
    return {**installed.usable(kind), **from_files[kind]}


def find(kind: str, name: str) -> Any:
    """The plugin class called `name`, no other imported; `LookupError` with the nearest name where there is none."""
    if isinstance(name, str) and name in from_files[kind]:
        return from_files[kind][name]
    if not isinstance(name, str) or name not in names(kind):
        raise Missing(f"no {KINDS[kind]} {brief(name)}{did_you_mean(str(name), names(kind))}")
    return installed.load(kind, name)


def names(kind: str) -> set[str]:
    """The names of every plugin of a kind, usable or not; nothing is imported."""
    return {*installed.registered(kind), *from_files[kind]}


def origin_of(kind: str, name: str) -> str:
    """Where a plugin comes from: `file` for one that the user gave, else distribution and version."""
    return "file" if name in from_files[kind] else installed.origin(installed.registered(kind)[name])


def load_file(path: Path) -> list[Any]:
    """Register every plugin class that a user's file defines; returns them.

    `ValueError` for a file that cannot be imported, one that ends the process instead, or two plugins of one name.
    """
    path = path.resolve()
    if not path.is_file():
        raise Missing(f"plugin file {path} does not exist")
    module_name = f"paftbench_plugin_{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"
    spec = importlib.util.spec_from_file_location(module_name, path)
    if spec is None or spec.loader is None:
        raise Refused(f"plugin file {path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # an exit code of the file's own would pass for a command's
        raise Refused(f"plugin file {path}: {type(error).__name__}: {error}") from error
    found: list[Any] = []
    for cls in vars(module).values():
        name = getattr(cls, "name", None)
        if inspect.isclass(cls) and cls.__module__ == module_name and isinstance(name, str):
            kind = _kind_of(cls, path)
            if any(other is not cls and other.name == name and _kind_of(other, path) == kind for other in found):
                raise Refused(f"plugin file {path} defines two {kind} called {name!r}")
            from_files[kind][name] = cls
            found.append(cls)
    if not found:
        raise Refused(f"plugin file {path} defines no fault model, mitigation or workload")
    return found


def _kind_of(cls: type, path: Path) -> str:
    for base in cls.__mro__:
        kind = getattr(base, "plugin_kind", None)
        if kind in KINDS:
            return kind
    raise Refused(f"{cls.__name__} in {path} is neither a fault model, a mitigation nor a workload")


def build_named(kind: str, spec: Mapping[str, Any], where: str) -> Any:
    """A plugin instance from `{name: ..., field: value, ...}`."""
    if not isinstance(spec, Mapping) or "name" not in spec:
        raise Refused(f"{where}: expected a mapping with a name, got {brief(spec)}")
    values = {key: value for key, value in spec.items() if key != "name"}
    return build(find(kind, spec["name"]), values, f"{where} ({spec['name']})")


def spec_of(plugin: Any) -> dict[str, Any]:
    """The inverse of `build_named`: every field resolved, ready for JSON."""
    return {"name": plugin.name, **field_values(plugin)}


def meaning_of(cls: Any, name: str) -> str:
    """The sentence of the class's docstring, or a base's, that speaks of the field."""
    if name in ("degree", "unit") and hasattr(cls, "units"):
        ranges = ", ".join(f"{unit} in [{low:g}, {high:g}]" for unit, (low, high) in cls.units.items())
        return f"strength of the fault: {ranges}" if name == "degree" else f"what degree counts: {', '.join(cls.units)}"
    for base in cls.__mro__:
        text = " ".join((base.__dict__.get("__doc__") or "").split())
        for sentence in text.split(". "):
            if f"`{name}`" in sentence or f"`{name}=" in sentence:
                return sentence.rstrip(".")
    return ""


def source_sha256(plugin: Any) -> str:
    """Hash of the files that define a plugin's class and what it inherits, by which a stale result is recognised.

    The contract itself does not count.
    """
    own = list(takewhile(lambda cls: "plugin_kind" not in vars(cls), type(plugin).__mro__))
    contract = inspect.getfile(type(plugin).__mro__[len(own)])
    files = dict.fromkeys(inspect.getfile(cls) for cls in own)
    digest = hashlib.sha256()
    for file in files:
        if file != contract:
            digest.update(Path(file).read_bytes())
    return digest.hexdigest()
