"""`KEY=VALUE` on the command line: the value is YAML, commas outside brackets sweep."""

from dataclasses import dataclass
from typing import Any

from paftbench.errors import Refused
from paftbench.experiment.yaml_text import read_yaml
from paftbench.suggest import LONGEST_REPR

_OPEN, _CLOSE, _QUOTES = "[{(", "]})", "'\""


@dataclass(frozen=True, kw_only=True)
class Override:
    """One `KEY=VALUE`; more than one value is a sweep."""

    key: str
    values: tuple[Any, ...]

    @property
    def text(self) -> str:
        return f"{self.key}={','.join(str(value) for value in self.values)}"


def parse_override(text: str) -> Override:
    """An override from its text; `ValueError` in one line."""
    key, equals, value = text.partition("=")
    key, where = key.strip(), text if len(text) <= LONGEST_REPR else f"{text[: LONGEST_REPR - 3]}..."
    if not equals or not key or len(key) > LONGEST_REPR:
        raise Refused(f"expected KEY=VALUE, got {where!r}")
    if not value.strip():
        raise Refused(f"{where}: a value is missing (null is written as null)")
    pieces = split_sweep(value)
    if len(pieces) > 1 and not all(piece.strip() for piece in pieces):
        raise Refused(f"{where}: a value between commas is empty")
    return Override(key=key, values=tuple(read_yaml(piece, where) for piece in pieces))


def split_sweep(text: str) -> list[str]:
    """The pieces between commas that stand outside brackets and quotes."""
    pieces, depth, quote, piece = [], 0, "", ""
    for character in text:
        if quote:
            quote = "" if character == quote else quote
        elif character in _QUOTES:
            quote = character
        elif character in _OPEN:
            depth += 1
        elif character in _CLOSE:
            depth -= 1
        elif character == "," and depth == 0:
            pieces.append(piece)
            piece = ""
            continue
        piece += character
    return [*pieces, piece]
