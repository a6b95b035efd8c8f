"""What a record must hold for those who read it: its keys, and of which kind their values are."""

from collections.abc import Mapping
from typing import Any, Final

Kinds = tuple[type, ...]
NUMBER: Final[Kinds] = (int, float)
NUMBER_OR_NONE: Final[Kinds] = (int, float, type(None))
TEXT: Final[Kinds] = (str,)
MAPPING: Final[Kinds] = (dict,)
LIST: Final[Kinds] = (list,)
_WORDS = {
    int: "a number", float: "a number", bool: "true or false", str: "text", dict: "a mapping", list: "a list",
    type(None): "null",
}  # fmt: skip
_LONGEST = 60  # letters of a value that a message repeats


def require(values: Any, shape: Mapping[str, Kinds], where: str) -> None:
    """`ValueError` of one line unless `values` is a mapping with the keys of `shape`, each of one of its kinds."""
    if not isinstance(values, dict):
        raise ValueError(f"{where} must be a mapping, got {_shown(values)}")
    for key, kinds in shape.items():
        if key not in values:
            raise ValueError(f"{where} lacks {', '.join(repr(key) for key in shape if key not in values)}")
        if not isinstance(values[key], kinds):
            expected = " or ".join(dict.fromkeys(_WORDS[kind] for kind in kinds))
            raise ValueError(f"{where}: {key} must be {expected}, got {_shown(values[key])}")


def require_each(values: Any, kinds: Kinds, where: str) -> None:
    """`ValueError` of one line unless every item of a list or every value of a mapping is of one of `kinds`."""
    for value in values.values() if isinstance(values, dict) else values:
        if not isinstance(value, kinds):
            expected = " or ".join(dict.fromkeys(_WORDS[kind] for kind in kinds))
            raise ValueError(f"{where} must hold {expected} each, got {_shown(value)}")


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
