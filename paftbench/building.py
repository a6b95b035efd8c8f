"""The one door from what a user wrote to typed objects; errors are one line that says where, what and the value got."""

import re
from collections.abc import Collection, Mapping
from dataclasses import MISSING, fields
from functools import cache
from math import isfinite
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from paftbench.errors import Missing, Refused
from paftbench.suggest import brief, did_you_mean, nearest

_DECIMAL = re.compile(r"[-+]?(?:(?:0|[1-9][0-9]*)(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?")

T = TypeVar("T")


def mapping_of(content: Any, where: str, known: Collection[str] | None = None) -> dict[str, Any]:
    """A copy of a mapping whose keys are all in `known` (None: any)."""
    if not isinstance(content, Mapping):
        raise Refused(f"{where}: expected a mapping, got {brief(content)}")
    for key in content:
        if known is not None and key not in known:
            raise Refused(f"{where}: unknown key {brief(key)}{did_you_mean(str(key), known)}")
    return {str(key): value for key, value in content.items()}


def optional_mapping(content: Any, where: str, known: Collection[str] | None = None) -> dict[str, Any]:
    """`mapping_of`, empty for null."""
    return mapping_of({} if content is None else content, where, known)


def list_of(content: Any, where: str) -> list[Any]:
    """A copy of a list, empty for null."""
    if not isinstance(content, list | tuple | None):
        raise Refused(f"{where}: expected a list, got {brief(content)}")
    return list(content or ())


def text_of(content: Any, where: str) -> str:
    """A text for people, which may be a number, or null."""
    if isinstance(content, bool) or not isinstance(content, str | int | float | None):
        raise Refused(f"{where} must be a text, got {brief(content)}")
    return "" if content is None else str(content)


def build(cls: type[T], spec: Mapping[str, Any], where: str) -> T:
    """An instance of a frozen dataclass, of fields that are what the class says they are, or can be read so.

    A field is called `where.field`, or `where field` after a colon.
    """
    known = {field.name: field for field in fields(cls) if field.init}  # type: ignore[arg-type]
    whole = where.removesuffix(":")
    values = mapping_of(spec, whole, known)
    for name, field in known.items():
        if field.default is MISSING and field.default_factory is MISSING and name not in values:
            raise Refused(f"{whole}: {name!r} is missing")
    try:
        built: T = _adapter(cls).validate_python(values)  # type: ignore[arg-type]
    except ValidationError as error:
        raise _refusal(error, where) from None
    for key, value in values.items():
        if wanted := _mistaken(value, getattr(built, key)):
            raise Refused(f"{_place(where, key)}: expected {wanted}, got {brief(value)}")
        if isinstance(getattr(built, key), list | dict | set) and hasattr(cls, "plugin_kind"):
            raise Refused(f"{where}.{key}: {cls.__name__} holds {brief(value)}, which can change; a tuple cannot")
    return built


def field_values(instance: Any) -> dict[str, Any]:
    """The inverse of `build`."""
    return {field.name: getattr(instance, field.name) for field in fields(instance) if field.init}


def _place(where: str, field: str) -> str:
    return f"{where}{' ' if where.endswith(':') else '.'}{field}"


def _refusal(error: ValidationError, where: str) -> Refused:
    """What pydantic found first, in a line; a class's own word on its fields is kept, with its kind."""
    first = error.errors()[0]
    place = _place(where, str(first["loc"][0])) if first["loc"] else where.removesuffix(":")
    if first["type"] == "value_error":
        own = first["ctx"]["error"]
        return (Missing if isinstance(own, Missing) else Refused)(f"{place}: {own}")
    wanted = "expected true or false" if first["type"].startswith("bool_") else first["msg"]
    near = nearest(str(first["input"]), re.findall(r"'(\w+)'", wanted)) if first["type"] == "literal_error" else ""
    return Refused(f"{place}: {wanted}, got {brief(first['input'])}{near}")


def _mistaken(given: Any, got: Any) -> str:
    """What was wanted where something else was taken for it: a word for a number, true or false for either."""
    if isinstance(given, list | tuple) and isinstance(got, list | tuple):
        return next((wanted for pair in zip(given, got, strict=False) if (wanted := _mistaken(*pair))), "")
    if isinstance(got, float) and not isfinite(got):
        return "a finite number"
    if isinstance(given, bool):
        return "" if isinstance(got, bool) else "a number or a word"
    if isinstance(got, bool):
        return "true or false"
    is_odd = isinstance(given, str) and isinstance(got, int | float) and not _DECIMAL.fullmatch(given)
    return "a plain decimal number" if is_odd else ""


@cache
def _adapter(cls: Any) -> TypeAdapter[Any]:
    return TypeAdapter(cls)
