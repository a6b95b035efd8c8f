"""What a record must hold for those who read it: a small language for the shape of JSON values.

Every `check(value, where, at)` is silent or a `ValueError` of one line: `where` is the file, `at` the place in it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any, Final, Protocol

from paftbench.errors import Refused

BEYOND: Final = 2**63  # what a whole number stays below, as in tables of other tools
_LONGEST = 60  # letters of a value that a message repeats
_ABSENT: Final = object()


class Shape(Protocol):
    """What a value may be."""

    def check(self, value: Any, where: str, at: str = "") -> None:
        """`ValueError` unless the value has this shape."""
        ...


@dataclass(frozen=True)
class Kind:
    """A value by its JSON type, so that true is no number, and by what `holds` says of it beyond."""

    words: str
    types: frozenset[type]
    holds: Callable[[Any], bool] | None = None

    def fits(self, value: Any) -> bool:
        return type(value) in self.types and (self.holds is None or self.holds(value))

    def check(self, value: Any, where: str, at: str = "") -> None:
        if not self.fits(value):
            raise refused(where, at, f"must be {self.words}", value)

    def or_null(self) -> "Kind":
        """The same, or null."""
        holds = self.holds
        beyond = None if holds is None else lambda value: value is None or holds(value)
        return Kind(f"{self.words} or null", self.types | {type(None)}, beyond)


def is_text(value: str) -> bool:
    """Whether it is Unicode: half of a surrogate pair is nothing that a file or a terminal takes."""
    return value.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in value)


def one_of(words: Sequence[str]) -> Kind:
    """One of a few words."""
    return Kind(f"one of {', '.join(words)}", frozenset({str}), lambda value: value in words)


_NUMBER, _TEXT = frozenset({int, float}), frozenset({str})
NUMBER: Final = Kind("a number", _NUMBER)
FINITE: Final = Kind("a finite number", _NUMBER, isfinite)
COUNT: Final = Kind("a whole number >= 0", frozenset({int}), lambda value: 0 <= value < BEYOND)
POSITIVE: Final = Kind("a whole number >= 1", frozenset({int}), lambda value: 1 <= value < BEYOND)
FLAG: Final = Kind("true or false", frozenset({bool}))
TEXT: Final = Kind("text", _TEXT, is_text)
ANY_TEXT: Final = Kind("text", _TEXT)  # also a path or an argument that is not Unicode
SCALAR: Final = Kind(
    "text, a number, true, false or null", frozenset({str, int, float, bool, type(None)}),
    lambda value: type(value) is not str or is_text(value),
)  # fmt: skip
MAPPING: Final = Kind("a mapping", frozenset({dict}))


@dataclass(frozen=True)
class Each:
    """A list, all of its items of one shape."""

    of: Shape

    def check(self, value: Any, where: str, at: str = "") -> None:
        if type(value) is not list:
            raise refused(where, at, "must be a list", value)
        for number, item in enumerate(value):
            if type(self.of) is not Kind:
                self.of.check(item, where, f"{at}[{number}]")
            elif not self.of.fits(item):
                raise refused(where, at, f"must hold {self.of.words} each", item)


@dataclass(frozen=True)
class Table:
    """A mapping of any keys, all of its values of one kind."""

    of: Kind

    def check(self, value: Any, where: str, at: str = "") -> None:
        MAPPING.check(value, where, at)
        for key, item in value.items():
            if not is_text(key):
                raise refused(where, at, "must have keys of text", key)
            if not self.of.fits(item):
                raise refused(where, at, f"must hold {self.of.words} each", item)


@dataclass(frozen=True)
class Fields:
    """A mapping with the keys of `needed`; those of `known` have their shape where they are there, others any."""

    needed: Mapping[str, Shape]
    known: Mapping[str, Shape]

    def check(self, value: Any, where: str, at: str = "") -> None:
        MAPPING.check(value, where, at)
        for key in self.needed:
            if key not in value:
                lacking = ", ".join(repr(key) for key in self.needed if key not in value)
                raise Refused(f"{where}{at and ': ' + at} lacks {lacking}")
        for shapes in (self.needed, self.known):
            for key, shape in shapes.items():
                item = value.get(key, _ABSENT)
                if item is not _ABSENT and not (type(shape) is Kind and shape.fits(item)):
                    shape.check(item, where, f"{at}.{key}" if at else key)


@dataclass(frozen=True)
class Maybe:
    """A shape, or null."""

    of: Shape

    def check(self, value: Any, where: str, at: str = "") -> None:
        if value is not None:
            self.of.check(value, where, at)


def refused(where: str, at: str, what: str, value: Any) -> Refused:
    """The error that says what should stand at a place, and what does."""
    text = repr(value)
    got = text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
    return Refused(f"{where}{at and ': ' + at} {what}, got {got}")
