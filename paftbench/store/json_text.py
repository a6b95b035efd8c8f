"""JSON as records hold it: whatever stands in the bytes, values that Python takes, or a `ValueError` of one line.

JSON has no NaN and no infinities: they are written as the strings "nan", "inf" and "-inf", and read back as floats.
"""

import json
import re
import sys
from collections import Counter
from collections.abc import Mapping
from functools import partial
from math import isfinite, isnan
from typing import Any, Final

from paftbench.errors import Refused

DEEPEST: Final = 64  # no record nests deeper than ten
_WORDS = {"nan": float("nan"), "inf": float("inf"), "-inf": float("-inf")}
_HAS_WORD = re.compile(rb'"(?:nan|-?inf)"')  # most records have none, and need no second walk
_TO_NOUGHTS = bytes.maketrans(b"123456789E", b"000000000e")
_LONG = b"0" * 300


def encoded(value: Any) -> Any:
    """A value without NaN and infinities."""
    if isinstance(value, float) and not isfinite(value):
        return "nan" if isnan(value) else ("inf" if value > 0 else "-inf")
    if isinstance(value, Mapping):
        return {str(key): encoded(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [encoded(item) for item in value]
    return value


def mapping(content: bytes, where: str) -> dict[str, Any]:
    """The JSON mapping in some bytes.

    Refused are numbers beyond a float, keys given twice, which readers take differently, and nesting without end.
    """
    noughts = content.translate(_TO_NOUGHTS, delete=b"+")
    decoder = _CAREFUL if b"e000" in noughts or _LONG in noughts else _QUICK
    try:
        payload = decoder.decode(content.decode("utf-8-sig"))
        if content.count(b"[") + content.count(b"{") > DEEPEST:
            _check_depth(payload, DEEPEST)
    except RecursionError:
        raise Refused(f"{where} is nested more than {DEEPEST} deep") from None
    except ValueError as error:
        raise Refused(f"{where} is not JSON: {error}") from None
    if not isinstance(payload, dict):
        raise Refused(f"{where} holds no JSON mapping")
    return _decoded(payload) if _HAS_WORD.search(content) else payload


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        twice = Counter(key for key, _ in pairs).most_common(1)[0][0]
        raise Refused(f"the key {twice!r} is given twice")
    return values


def _number(text: str, kind: type[int] | type[float]) -> int | float:
    """A whole number has at most as many digits as the largest float."""
    value = kind(text) if len(text) < 400 or kind is float else float("inf")
    if abs(value) > sys.float_info.max:
        raise Refused(f"the number {text[:20]}... is beyond a float")
    return value


_QUICK = json.JSONDecoder(object_pairs_hook=_unique)
_CAREFUL = json.JSONDecoder(
    object_pairs_hook=_unique, parse_int=partial(_number, kind=int), parse_float=partial(_number, kind=float)
)


def _check_depth(value: Any, left: int) -> None:
    if left == 0:
        raise RecursionError
    for item in value.values() if isinstance(value, dict) else value:
        if isinstance(item, dict | list):
            _check_depth(item, left - 1)


def _decoded(value: Any) -> Any:
    if isinstance(value, str):
        return _WORDS.get(value, value)
    if isinstance(value, dict):
        return {key: _decoded(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_decoded(item) for item in value]
    return value
