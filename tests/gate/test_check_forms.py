"""The gate's findings as text, JUnit, Markdown and JSON."""

import json
from math import nan
from xml.etree import ElementTree

from support.checkout import ROOT

from paftbench.gate import as_json, junit, markdown, table
from paftbench.gate.finding import Finding, Gate
from paftbench.records.expectation import MEASURES
from paftbench.store.files import encode_line


def a_gate() -> Gate:
    awkward = "noise <a> & |b| *c*"
    common = {"value": "quality_lost", "source": "expect[0]", "bound": "<= 0.02", "seeds": 5}
    return Gate(
        experiment="ci/quick", command="paftbench check ci/quick", trials=12, environment={"torch": "2.14.1"},
        findings=(
            Finding(subject="flips", verdict="pass", number=0.001, low=-2e-4, high=0.004, spread="95 %", **common),
            Finding(subject="stale", verdict="inconclusive", number=0.01, low=0.0, high=0.03, reason="more", **common),
            Finding(subject=awkward, verdict="fail", number=nan, reason="s1 crashed: \x1b[31m<b>", **common),
            Finding(subject="t/s0", verdict="fail", reason="no memory", is_error=True, value="trial", source="trial"),
        ),
    )  # fmt: skip


def test_the_table_has_failures_first_and_fits_100_columns() -> None:
    text = table.render(a_gate(), width=100)
    rows = [line.split()[0] for line in text.splitlines() if line[:4] in ("fail", "inco", "pass")]
    assert rows == ["fail", "fail", "inconclusive", "pass", "fail:", "fail:", "inconclusive:"]
    assert max(map(len, text.splitlines())) <= 100
    assert text.endswith("ci/quick: fail (2 fail, 1 inconclusive, 1 pass)") and "0.000..0.004" in text


def test_junit_shows_nothing_inconclusive_as_green() -> None:
    root = ElementTree.fromstring(junit.render(a_gate()))
    suite = root.find("testsuite")
    assert suite is not None
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("4", "2", "1")
    kinds = [[(part.tag, part.get("type")) for part in case] for case in suite]
    assert kinds == [
        [("system-out", None)], [("failure", "inconclusive")], [("failure", "fail")], [("error", "error")],
    ]  # fmt: skip
    assert "[31m<b>" in str(suite[2][0].get("message"))


def test_markdown_escapes_what_could_leave_its_table() -> None:
    text = markdown.render(a_gate())
    assert text.startswith("### ❌ paftbench check: ci/quick: fail")
    assert "noise &lt;a&gt; &amp; \\|b\\| \\*c\\*" in text and "<b>" not in text
    assert "<details><summary>1 passed</summary>" in text and "paftbench check ci/quick" in text
    first = text.index("\n| ")
    rows = text[first:].split("\n\n")[0].strip().splitlines()
    assert all(row.replace("\\|", "").count("|") == 8 for row in rows)


def test_json_holds_every_number_and_the_exit_code() -> None:
    content = json.loads(encode_line(as_json.content(a_gate())))
    assert (content["schema"], content["verdict"], content["exit"]) == (1, "fail", 1)
    assert content["counts"] == {"fail": 2, "inconclusive": 1, "pass": 1}
    assert content["findings"][0]["low"] == -2e-4 and content["findings"][2]["number"] == "nan"


def test_the_page_names_every_key_and_every_value() -> None:
    page = (ROOT / "docs" / "check.md").read_text()
    content = as_json.content(a_gate())
    missing = [name for name in (*content, *content["findings"][0], *MEASURES) if f"`{name}" not in page]
    assert missing == []
