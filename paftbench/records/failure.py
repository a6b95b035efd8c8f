"""`failure.json`: what a trial's own process said of its end."""

from dataclasses import dataclass

from paftbench.records.kinds import AnyText, Count, Text


@dataclass(frozen=True, kw_only=True)
class Failure:
    """Strikes that had landed, the part of paftbench that is to blame (None: the training itself), and the words."""

    strikes: Count = 0
    part: Text | None = None
    reason: AnyText = ""
    trace: AnyText = ""
