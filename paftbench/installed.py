"""Plugins of installed distributions, found by entry point; one that is broken stands in nobody's way."""

import inspect
import logging
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from paftbench.errors import Missing

GROUPS = {"fault_models": "fault model", "mitigations": "mitigation", "workloads": "workload"}
OWN = "paftbench"

log = logging.getLogger(__name__)


@cache
def registered(kind: str) -> dict[str, EntryPoint]:
    """Every entry point of a kind, by plugin name, nothing imported.

    Of two distributions with the same name for a plugin paftbench wins, then the first in the alphabet.
    """
    found: dict[str, EntryPoint] = {}
    for point in sorted(entry_points(group=f"paftbench.{kind}"), key=_precedence):
        first = found.setdefault(point.name, point)
        if first is not point and _distribution(first) != _distribution(point):
            log.warning(
                "paftbench: warning: %s %r of %s is left out: %s has one of that name",
                GROUPS[kind], point.name, origin(point), origin(first),
            )  # fmt: skip
    return found


@cache
def load(kind: str, name: str) -> type:
    """The class behind an entry point; `LookupError` naming the distribution where it cannot be used."""
    point = registered(kind)[name]
    try:
        cls: Any = point.load()
    except Exception as error:
        raise _refused(kind, point, f"{type(error).__name__}: {' '.join(str(error).split())}") from error
    if not inspect.isclass(cls) or getattr(cls, "plugin_kind", None) != kind:
        raise _refused(kind, point, f"{point.value} is not a {GROUPS[kind]}")
    if getattr(cls, "name", None) != name:
        raise _refused(kind, point, f"{point.value} has the name {getattr(cls, 'name', None)!r}")
    return cls


@cache
def usable(kind: str) -> dict[str, type]:
    """Every class of a kind that can be imported; a warning of one line for each other one."""
    found = {}
    for name in registered(kind):
        try:
            found[name] = load(kind, name)
        except LookupError as error:
            log.warning("paftbench: warning: %s", error)
    return found


def origin(point: EntryPoint) -> str:
    """The distribution and version that an entry point belongs to."""
    return f"{point.dist.name} {point.dist.version}" if point.dist is not None else "unknown"


def _refused(kind: str, point: EntryPoint, reason: str) -> Missing:
    return Missing(f"{GROUPS[kind]} {point.name!r} of {origin(point)} cannot be used: {reason}")


def _distribution(point: EntryPoint) -> str:
    return point.dist.name if point.dist is not None else ""


def _precedence(point: EntryPoint) -> tuple[bool, str, str]:
    return (_distribution(point) != OWN, _distribution(point), point.name)
