"""The kinds of value that records hold, by their JSON type, so that true is no number and a number stays what it was.

Each is a type to annotate a field with. Importing them is light: pydantic is asked for when the first record is read.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Final

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler
    from pydantic_core import CoreSchema

BEYOND: Final = 2**63  # what a whole number stays below, as in tables of other tools


@dataclass(frozen=True)
class Kind:
    """What a value must be, in the words of a refusal; `schema` is made from `pydantic_core.core_schema`."""

    words: str
    schema: Callable[[Any], "CoreSchema"] | None = None

    def __get_pydantic_core_schema__(self, source: Any, handler: "GetCoreSchemaHandler") -> "CoreSchema":
        from pydantic_core import core_schema

        own = handler(source) if self.schema is None else self.schema(core_schema)
        return core_schema.custom_error_schema(own, "kind", custom_error_message=f"must be {self.words}")


@dataclass(frozen=True, kw_only=True)
class Open:
    """A mapping of which readers know some keys: those are attributes, and `fields` is all that stands there."""

    fields: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: "GetCoreSchemaHandler") -> "CoreSchema":
        from pydantic_core import core_schema

        return core_schema.no_info_before_validator_function(_whole, handler(source))


def _whole(value: Any) -> Any:
    return {**value, "fields": value} if isinstance(value, dict) else value


def one_of(words: Sequence[str]) -> Kind:
    """One of a few words."""
    return Kind(f"one of {', '.join(words)}", lambda make: make.literal_schema(list(words)))


def _whole_number(least: int) -> Kind:
    return Kind(f"a whole number >= {least}", lambda make: make.int_schema(strict=True, ge=least, lt=BEYOND))


def _number(make: Any, *, finite: bool) -> "CoreSchema":
    return make.union_schema([make.int_schema(strict=True), make.float_schema(strict=True, allow_inf_nan=not finite)])


def _text(make: Any) -> "CoreSchema":
    # A bound, because only then it is looked for halves of surrogate pairs, which no file or terminal takes.
    return make.str_schema(strict=True, max_length=BEYOND - 1)


def _scalar(make: Any) -> "CoreSchema":
    return make.nullable_schema(make.union_schema([_text(make), _number(make, finite=False), _flag(make)]))


def _flag(make: Any) -> "CoreSchema":
    return make.bool_schema(strict=True)


Number = Annotated[float, Kind("a number", lambda make: _number(make, finite=False))]
Finite = Annotated[float, Kind("a finite number", lambda make: _number(make, finite=True))]
Whole = Annotated[int, Kind("a whole number", lambda make: make.int_schema(strict=True))]
Count = Annotated[int, _whole_number(0)]
Positive = Annotated[int, _whole_number(1)]
Flag = Annotated[bool, Kind("true or false", _flag)]
Text = Annotated[str, Kind("text", _text)]
AnyText = Annotated[str, Kind("text", lambda make: make.str_schema(strict=True))]  # also a path that is not Unicode
Label = str | int | float | bool | None
Scalar = Annotated[Label, Kind("text, a number, true, false or null", _scalar)]
# A trial's directory and files of its figures are named after it.
Id = Annotated[
    str,
    Kind("letters and digits", lambda make: make.str_schema(strict=True, pattern=r"^[A-Za-z0-9_-]{1,64}$")),
]
