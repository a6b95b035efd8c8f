"""docs/resilience.md: its loop runs as it stands, and goes on from where it was."""

import json
import re
from pathlib import Path

import pytest
from support.checkout import ROOT

from paftbench.resilience import Recovery, Robust, SkipStep, ZClip

PAGE = (ROOT / "docs" / "resilience.md").read_text(encoding="utf-8")


def test_the_loop_of_the_page_trains_and_a_second_start_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.S)
    for until in (60, 200):
        exec(compile(code.replace("until=200", f"until={until}"), "the page", "exec"), {"__name__": "page"})
    rows = [json.loads(line) for line in (tmp_path / "runs" / "mine" / "events.jsonl").read_text().splitlines()]
    steps = [row["step"] for row in rows if row["event"] == "step"]
    assert steps == [*range(60), *range(50, 200)]
    assert {row["event"] for row in rows} <= set(re.findall(r"`([a-z ]+)`", PAGE.partition("## The log")[2]))
    losses = [row["loss"] for row in rows if row["event"] == "step"]
    assert sum(losses[-20:]) < sum(losses[:20]) / 2


def test_the_rules_and_rungs_that_the_page_names_are_there() -> None:
    table = re.findall(r"^\| `(\w+)\(\)`", PAGE, re.M)
    assert table == [rule.__name__ for rule in (Robust, ZClip, SkipStep)]
    for name in ("skips", "cuts", "rollbacks", "calm"):
        assert f"`{name}`" in PAGE and hasattr(Recovery(), name)
