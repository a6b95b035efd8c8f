"""The findings for a pull request: what failed on top, everything else behind a click."""

from collections.abc import Sequence

from paftbench.gate.finding import Finding, Gate
from paftbench.gate.table import in_order, interval_of, number_of

_SIGN = {"pass": "✅", "fail": "❌", "inconclusive": "⚠️"}


def render(gate: Gate) -> str:
    """Markdown as GitHub and GitLab read it; cells cannot break out of the table."""
    ordered = in_order(gate.findings)
    telling = [finding for finding in ordered if finding.verdict != "pass"]
    passed = [finding for finding in ordered if finding.verdict == "pass"]
    parts = [f"### {_SIGN[gate.verdict]} paftbench check: {_escaped(gate.summary)}"]
    if telling:
        parts.append(_table(telling))
        parts.append("\n".join(f"* {_escaped(f'{one.subject}, {one.value}: {one.reason}')}" for one in telling))
    if passed:
        parts.append(_folded(f"{len(passed)} passed", _table(passed)))
    where = ", ".join(f"{key} {value}" for key, value in gate.environment.items() if value)
    against = f", against `{gate.baseline}` ({gate.mode})" if gate.baseline else ""
    parts.append(_folded("How", f"{gate.trials} trials{against}; {_escaped(where)}\n\n```\n{gate.command}\n```"))
    return "\n\n".join(parts) + "\n"


def _table(findings: Sequence[Finding]) -> str:
    head = "| | cell | value | mean | range or 95 % | bound | seeds |\n|---|---|---|--:|--:|---|--:|"
    rows = [
        (
            _SIGN[finding.verdict], finding.subject, finding.value, number_of(finding), interval_of(finding),
            finding.bound, str(finding.seeds),
        )
        for finding in findings
    ]  # fmt: skip
    return "\n".join([head, *("| " + " | ".join(map(_escaped, row)) + " |" for row in rows)])


def _folded(title: str, text: str) -> str:
    return f"<details><summary>{title}</summary>\n\n{text}\n\n</details>"


def _escaped(text: str) -> str:
    """No markup and no new line; `<` of a bound stays readable."""
    for character in "\\`*_|[]":
        text = text.replace(character, f"\\{character}")
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("\n", " ")
