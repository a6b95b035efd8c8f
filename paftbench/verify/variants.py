"""Which settings of a plugin are tried: its defaults, and each choice that a field's type spells out."""

from collections.abc import Iterator, Mapping
from dataclasses import MISSING, fields
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from paftbench.building import build
from paftbench.verify.promise import Broken


def variants(cls: Any, skip: tuple[str, ...] = ()) -> Iterator[dict[str, Any]]:
    """The fields to set, one changed at a time: none, then each other value of a bool or a `Literal`.

    A combination that the plugin refuses with `ValueError` is left out, but not its defaults.
    """
    # One field at a time, not every combination: those multiply, and a promise that breaks only in one is rare.
    yield {}
    hints = get_type_hints(cls)
    for field in fields(cls):
        if field.init and field.name not in skip and field.default is not MISSING:
            for value in _choices(hints[field.name]):
                if value != field.default and _is_legal(cls, {field.name: value}):
                    yield {field.name: value}


def built(cls: Any, values: Mapping[str, Any]) -> Any:
    """An instance with these fields, validated as from an experiment file; `Broken` where it is refused."""
    try:
        return build(cls, values, cls.__name__)
    except ValueError as refused:
        raise Broken(f"expected {_text(values)} to be legal, got ValueError: {refused}") from refused


def label_of(values: Mapping[str, Any]) -> list[str]:
    """Fields as people write them."""
    return [f"{name}={value}" for name, value in values.items()]


def _choices(hint: Any) -> list[Any]:
    if hint is bool:
        return [False, True]
    if get_origin(hint) is Literal:
        return list(get_args(hint))
    if get_origin(hint) in (Union, UnionType):
        return [choice for part in get_args(hint) if part is not bool for choice in _choices(part)]
    return []


def _is_legal(cls: Any, values: Mapping[str, Any]) -> bool:
    try:
        build(cls, values, cls.__name__)
    except ValueError:
        return False
    return True


def _text(values: Mapping[str, Any]) -> str:
    return ", ".join(label_of(values)) or "the default of every field"
