"""YAML as users expect it: plain decimal numbers, `no` is a word, nothing refers elsewhere or is given twice.

YAML 1.1 reads `012`, `0x10`, `0b11` and `1:30` as 10, 16, 3 and 90. Whoever writes them means something else, or means
no number at all, so they are refused. Texts are small and flat, since people write them: what is not is refused before
it costs time or memory.
"""

import re
from math import isfinite
from pathlib import Path
from typing import Any, Final

import yaml

from paftbench.errors import Refused

LONGEST: Final = 64 * 1024  # characters of a text
DEEPEST: Final = 40  # mappings and lists inside each other
LARGEST: Final = 2**64  # no field of a trial holds a larger integer

_DIGITS = r"[0-9]+(?:_[0-9]+)*"
_WHOLE = r"(?:0|[1-9][0-9]*(?:_[0-9]+)*)"
_INT = re.compile(rf"[-+]?{_WHOLE}")
_FLOAT = re.compile(rf"[-+]?(?:{_WHOLE}(?:\.(?:{_DIGITS})?)?|\.{_DIGITS})(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)"
                    r"|\.(?:nan|NaN|NAN)")  # fmt: skip
_BOOL = re.compile(r"true|True|TRUE|false|False|FALSE")
# Other bases, sixties, leading zeros, stray underscores: a number to some reader of YAML, or to people.
_ODD = re.compile(r"[-+]?(?:0[xX][0-9a-fA-F_]+|0[oO][0-7_]+|0[bB][01_]+|[0-9][0-9_]*(?::[0-9_]+)+(?:\.[0-9_]*)?"
                  r"|[0-9][0-9_]*(?:\.[0-9_]*)?(?:[eE][-+]?[0-9_]+)?|\.[0-9][0-9_]*(?:[eE][-+]?[0-9_]+)?)")  # fmt: skip
_TAG = "tag:yaml.org,2002:"
_ODD_TAG = "!odd-number"
_UNPRINTABLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")


class _Loader(yaml.SafeLoader):
    """YAML 1.1 with decimal numbers and the booleans of 1.2, no dates, nothing that refers, and no duplicate keys."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        event = self.peek_event()
        if getattr(event, "anchor", None) is not None:
            raise _refusal(
                event, "anchors and aliases (& and *) are not read: write the values out, or set them in base"
            )
        if getattr(event, "tag", None) is not None:
            raise _refusal(event, f"tags ({event.tag.removeprefix(_TAG)}) are not read: write the plain value")
        self._depth += 1
        if self._depth > DEEPEST:
            raise _refusal(event, f"more than {DEEPEST} mappings and lists inside each other")
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        found: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, str | int | float | bool):
                raise _refusal(key_node, f"a key must be a word or a number, got {key!r}")
            if str(key) in found:
                raise _refusal(key_node, f"duplicate key {str(key)!r}")
            found[str(key)] = self.construct_object(value_node, deep=deep)
        return found


def _refusal(at: Any, problem: str) -> Refused:
    return Refused(f"line {at.start_mark.line + 1}: {problem}")


def _text(loader: _Loader, node: yaml.ScalarNode) -> str:
    """A word, whose characters people can see: others would break the lines of listings and records."""
    if odd := _UNPRINTABLE.search(node.value):
        raise _refusal(node, f"a text with the unprintable character {odd.group()!r}")
    return node.value


def _whole(loader: _Loader, node: yaml.ScalarNode) -> int:
    digits = node.value.replace("_", "")
    if len(digits) > 21 or abs(int(digits)) >= LARGEST:
        raise _refusal(node, f"the number {_short(node.value)} is beyond 2**64")
    return int(digits)


def _real(loader: _Loader, node: yaml.ScalarNode) -> float:
    digits = node.value.replace("_", "")
    if digits.lower().strip("-+") in (".inf", ".nan"):
        return float(digits.replace(".", ""))
    if not isfinite(float(digits)):
        raise _refusal(node, f"the number {_short(node.value)} is beyond 1.8e308")
    return float(digits)


def _odd_number(loader: _Loader, node: yaml.ScalarNode) -> Any:
    raise _refusal(
        node, f"{_short(node.value)} is no plain decimal number, as in 12, 1e-3 and 1_000; in quotes it is a word"
    )


def _merge(loader: _Loader, node: yaml.ScalarNode) -> Any:
    raise _refusal(node, "merge keys (<<) are not read: write the fields out, or set them in base")


def _short(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:37]}..."


_PLAIN = {f"{_TAG}null", f"{_TAG}merge"}
_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag in _PLAIN]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
for _tag, _pattern, _first in (
    (f"{_TAG}int", _INT, "-+0123456789"),
    (f"{_TAG}float", _FLOAT, "-+.0123456789"),
    (_ODD_TAG, _ODD, "-+.0123456789"),
    (f"{_TAG}bool", _BOOL, "tTfF"),
):
    _Loader.add_implicit_resolver(_tag, re.compile(rf"(?:{_pattern.pattern})\Z"), list(_first))
_Loader.yaml_constructors = {
    tag: make
    for tag, make in yaml.SafeLoader.yaml_constructors.items()
    if tag is None or tag.removeprefix(_TAG) in ("null", "bool", "seq", "map")
}
for _tag, _make in (
    (f"{_TAG}str", _text),
    (f"{_TAG}int", _whole),
    (f"{_TAG}float", _real),
    (f"{_TAG}merge", _merge),
    (_ODD_TAG, _odd_number),
):
    _Loader.add_constructor(_tag, _make)


def read_yaml(text: str, where: str) -> Any:
    """The value of a YAML text, keys as text; `ValueError` of one line that starts with `where`."""
    if len(text) > LONGEST:
        raise Refused(f"{where} is too long: {len(text)} characters, an experiment has at most {LONGEST}")
    try:
        return yaml.load(text, Loader=_Loader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        problem = getattr(error, "problem", None) or " ".join(str(error).split())
        raise Refused(f"{where} is not YAML: {place}{problem}") from None
    except ValueError as error:
        raise Refused(f"{where}, {error}") from None


def read_yaml_file(path: Path) -> Any:
    """The value of a YAML file."""
    with path.open("rb") as file:
        content = file.read(4 * LONGEST + 1)  # a character is four bytes at most
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        raise Refused(f"{path} is not YAML: it is not UTF-8 text") from None
    return read_yaml(text, str(path))
