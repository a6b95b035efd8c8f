"""A row of `injections.jsonl`: a strike, or a dense fault's whole event."""

from dataclasses import dataclass
from typing import Annotated, Any

from paftbench.records.kinds import Count, Flag, Kind, Number, Text


@dataclass(frozen=True, kw_only=True)
class InjectionRow:
    """Where a strike fell and what it changed; of a dense event the norm, and how many elements."""

    step: Count
    attempt: Any = 0
    fault: Text | None = None
    rank: Count
    site: Text
    parameter: Text | None = None
    index: Any = None
    landed: Flag
    bit: Annotated[Count | tuple[Count, ...] | None, Kind("a bit, a list of bits or null")] = None
    bits_before: Text | None = None
    bits_after: Any = None
    value_before: Number | None = None
    value_after: Number | None = None
    norm: Number | None = None
    elements: Count | None = None
