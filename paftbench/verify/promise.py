"""A promise, and what comes of trying it."""

from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any


class Broken(AssertionError):
    """A promise is broken; the message says what was expected and what was got."""


class NotTried(Exception):
    """A promise says nothing here, or cannot be tried here; the message says why."""


def expect(kept: bool, expected: str, got: object) -> None:
    """`Broken` unless kept."""
    if not kept:
        raise Broken(f"expected {expected}, got {got}")


@dataclass(frozen=True, kw_only=True)
class Promise:
    """`keep(case)` raises `Broken` or `NotTried`; `every_dtype`: it is tried in each dtype the plugin declares.

    `slow` ones need processes of their own and are left out with `--fast`.
    """

    keep: Callable[[Any], None]
    every_dtype: bool = False
    slow: bool = False

    @property
    def sentence(self) -> str:
        """The promise in words."""
        return self.keep.__name__.replace("_", " ")


def promise(*, every_dtype: bool = False, slow: bool = False) -> Callable[[Callable[[Any], None]], Promise]:
    """Makes a promise of a function."""
    return lambda keep: Promise(keep=keep, every_dtype=every_dtype, slow=slow)


def promises_of(*modules: ModuleType) -> list[Promise]:
    """The promises that modules define, in their order there."""
    return [found for module in modules for found in vars(module).values() if isinstance(found, Promise)]
