"""The findings as JUnit XML: a test case each; what is inconclusive is not green."""

import re
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from paftbench.gate.finding import Finding, Gate
from paftbench.gate.table import interval_of, number_of

_NOT_XML = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def render(gate: Gate) -> str:
    """One suite, named after the experiment. `<failure type="fail|inconclusive">`, `<error>` for a trial in error."""
    errors = sum(finding.is_error for finding in gate.findings)
    failures = sum(finding.verdict != "pass" for finding in gate.findings) - errors
    suite = Element("testsuite", name=f"paftbench check {_clean(gate.experiment)}", tests=str(len(gate.findings)),
                    failures=str(failures), errors=str(errors), skipped="0")  # fmt: skip
    for finding in gate.findings:
        _case(suite, gate, finding)
    root = Element("testsuites")
    root.append(suite)
    indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + tostring(root, encoding="unicode") + "\n"


def _case(suite: Element, gate: Gate, finding: Finding) -> None:
    name = _clean(f"{finding.subject} {finding.value} {finding.bound}".strip())
    case = SubElement(suite, "testcase", classname=f"paftbench.{_clean(gate.experiment).replace('/', '.')}", name=name)
    text = _clean(f"{finding.value} {number_of(finding)} ({interval_of(finding)}), {finding.seeds} seeds, "
                  f"bound {finding.bound or '-'}. {finding.reason}".strip())  # fmt: skip
    if finding.verdict == "pass":
        SubElement(case, "system-out").text = text
    else:
        kind, type_ = ("error", "error") if finding.is_error else ("failure", finding.verdict)
        SubElement(case, kind, type=type_, message=_clean(finding.reason)).text = text


def _clean(text: str) -> str:
    """Characters that XML cannot hold are left out; the rest is escaped on writing."""
    return _NOT_XML.sub("", text)
