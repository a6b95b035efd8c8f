"""The findings as text: a row each, failures first, then a sentence for each that is not a plain pass."""

import shutil
import textwrap
from collections.abc import Sequence

from paftbench.analysis.check.finding import VERDICTS, Finding, Gate
from paftbench.analysis.text import draw, number

NARROWEST = 60


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
        "bound": [finding.bound.replace("never ", "never\n").replace(", ", ",\n") for finding in ordered],
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
    return number(finding.number)


def interval_of(finding: Finding) -> str:
    """`0.001..0.004`, or a dash."""
    return "-" if finding.low is None or finding.high is None else f"{number(finding.low)}..{number(finding.high)}"
