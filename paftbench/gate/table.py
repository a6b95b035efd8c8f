"""The findings as text: a row each, failures first, then a sentence for each that is not a plain pass."""

import shutil
import textwrap
from collections.abc import Sequence

from paftbench.analysis.text import draw, number
from paftbench.gate.finding import VERDICTS, Finding, Gate

NARROWEST = 60
BOUND_WIDTH = 18
SMALLEST = 1e-3  # what three decimals show


def render(gate: Gate, width: int | None = None) -> str:
    """The table, `width` columns wide (the terminal's, else 100)."""
    width = max(NARROWEST, width or shutil.get_terminal_size((100, 24)).columns)
    ordered = in_order(gate.findings)
    columns: dict[str, list[str]] = {
        "verdict": [finding.verdict for finding in ordered],
        "cell": [finding.subject for finding in ordered],
        "value": [finding.value for finding in ordered],
        "mean": [number_of(finding) for finding in ordered],
        "range or 95 %": [interval_of(finding) for finding in ordered],
        "bound": [textwrap.fill(finding.bound, BOUND_WIDTH) for finding in ordered],
        "seeds": [str(finding.seeds or "-") for finding in ordered],
    }
    sections = [finding.verdict for finding in ordered]
    parts = (
        [draw(columns, sections=sections, width=width, left=("verdict", "cell", "value", "bound"))] if ordered else []
    )
    reasons = [
        textwrap.fill(f"{finding.verdict}: {finding.subject}, {finding.value}: {finding.reason}", width,
                      subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
        for finding in ordered if finding.reason
    ]  # fmt: skip
    return "\n\n".join([*parts, *(["\n".join(reasons)] if reasons else []), gate.summary])


def in_order(findings: Sequence[Finding]) -> list[Finding]:
    """Failures first, and otherwise as they were found."""
    return sorted(findings, key=lambda finding: VERDICTS.index(finding.verdict))


def number_of(finding: Finding) -> str:
    """The mean over seeds."""
    return _number(finding.number, finding)


def interval_of(finding: Finding) -> str:
    """`0.001..0.004`, or a dash."""
    if finding.low is None or finding.high is None:
        return "-"
    return f"{_number(finding.low, finding)}..{_number(finding.high, finding)}"


def _number(value: float | None, finding: Finding) -> str:
    """As everywhere, but without powers of ten for what is next to nothing beside the finding's other numbers."""
    largest = max(abs(own) for own in (finding.number or 0.0, finding.low or 0.0, finding.high or 0.0))
    tiny = value is not None and abs(value) < SMALLEST <= largest < 1e5
    return f"{value:.3f}".replace("-0.000", "0.000") if tiny else number(value)
