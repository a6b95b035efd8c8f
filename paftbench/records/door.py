"""The one door of records: from a JSON mapping to the object that all who read it rely on, and back."""

from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

from paftbench.errors import Refused
from paftbench.records.kinds import Open

if TYPE_CHECKING:
    from pydantic import TypeAdapter
    from pydantic_core import ErrorDetails

SCHEMA: Final = 1
_LONGEST = 60  # letters of a value that a message repeats
_WORDS: Final = {
    "dataclass_type": "must be a mapping", "dict_type": "must be a mapping",
    "tuple_type": "must be a list", "list_type": "must be a list",
}  # fmt: skip
T = TypeVar("T")
_ADAPTERS: Final[dict[type, Any]] = {}


def parse(kind: type[T], values: Any, where: str) -> T:
    """The record in a JSON mapping; `ValueError` of one line that names `where`, the field and what it is.

    Keys that the record does not know are let be. Records of another schema may mean anything.
    """
    if "schema" in getattr(kind, "__dataclass_fields__", ()) and values.get("schema") != SCHEMA:
        raise Refused(f"{where} has schema {values.get('schema')!r}; this version reads schema {SCHEMA}")
    try:
        return _adapter(kind).validate_python(values)
    except ValueError as error:
        raise Refused(_said(error.errors(include_url=False), where)) from None  # type: ignore[attr-defined]


def plain(record: Any) -> Any:
    """The inverse of `parse`: a record's mapping, in the order of its fields."""
    if isinstance(record, Open):
        return record.fields
    if is_dataclass(record):
        return {item.name: plain(getattr(record, item.name)) for item in fields(record)}
    if isinstance(record, dict):
        return {key: plain(value) for key, value in record.items()}
    return record


def wrong(at: str, what: str, value: Any) -> Refused:
    """The error that says what should stand at a place, and what does."""
    text = repr(value)
    return Refused(f"{at} {what}, got {text if len(text) <= _LONGEST else f'{text[:_LONGEST]}...'}")


def _adapter(kind: type[T]) -> "TypeAdapter[T]":
    if kind not in _ADAPTERS:
        from pydantic import TypeAdapter

        _ADAPTERS[kind] = TypeAdapter(kind)
    return _ADAPTERS[kind]


def _said(errors: Sequence["ErrorDetails"], where: str) -> str:
    """The first of what is wrong; keys that lack are told together."""
    first = errors[0]
    *inside, last = first["loc"] or ("",)
    if first["type"] == "missing":
        beside = [error["loc"] for error in errors if error["type"] == "missing"]
        lacking = ", ".join(repr(loc[-1]) for loc in beside if list(loc[:-1]) == inside)
        return f"{where}{_place(inside)} lacks {lacking}"
    if first["type"] == "value_error":
        return f"{where}: {first['ctx']['error']}"
    what = _WORDS.get(first["type"], first["msg"])
    if last == "[key]":
        inside, what = inside[:-1], f"must have keys of text: a key {what}"
        return str(wrong(where + _place(inside), what, first["input"]))
    return str(wrong(where + _place(first["loc"]), what, first["input"]))


def _place(path: Sequence[int | str]) -> str:
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).lstrip(".")
    return text and f": {text}"
