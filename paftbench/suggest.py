"""Words for the end of an error message: the value that was got, the names that were possible."""

import difflib
from collections.abc import Iterable
from typing import Any

LISTED_NAMES = 24
LONGEST_REPR = 160  # characters


def brief(value: Any) -> str:
    """`repr`, cut where it is longer than a line of an error message can hold."""
    text = repr(value)
    return text if len(text) <= LONGEST_REPR else f"{text[: LONGEST_REPR - 3]}..."


def nearest(name: str, names: Iterable[str]) -> str:
    """`; did you mean 'x'?`, for a name that is nearly one of `names`; else nothing."""
    near = difflib.get_close_matches(name[:LONGEST_REPR], list(names), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """`; did you mean 'x'? Known: ...`, for the end of an error message; of many names only the nearest."""
    names, name = sorted(names), name[:LONGEST_REPR]
    if not names:
        return "; there is none"
    known = f"Known: {', '.join(names)}."
    if len(names) > LISTED_NAMES:
        close = difflib.get_close_matches(name, names, n=LISTED_NAMES // 4, cutoff=0.0)
        known = f"Known, the nearest of {len(names)}: {', '.join(close)}."
    return f"{nearest(name, names) or ';'} {known}"
