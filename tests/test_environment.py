"""The environment says what produced a result and nothing about whose machine it was."""

import json
import os
import platform
import sys

import pytest

from paftbench.environment import environment


def test_versions_and_processor_are_recorded_without_host_or_directories(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["/home/someone/bin/paftbench", "run", "quickstart", "--out=/home/someone/runs"])
    environment.cache_clear()
    record = environment()
    environment.cache_clear()
    assert record["versions"]["torch"] and record["python"] == platform.python_version()
    assert record["cpu_capability"] and record["threads"] >= 1
    assert record["argv"] == ["paftbench", "run", "quickstart", "--out=runs"]
    fields = {"versions", "python", "platform", "cpu_capability", "cpus", "threads", "cuda", "gpus", "git", "argv"}
    assert set(record) == fields
    text = json.dumps(record)
    assert "someone" not in text and os.path.expanduser("~/") not in text


def test_arguments_in_another_encoding_are_recorded_as_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """`LC_ALL=C` without UTF-8 mode, and names that are not UTF-8, give halves of surrogate pairs."""
    monkeypatch.setattr(sys, "argv", ["paftbench", "run", "--out", "r\udcc3\udca9", "x/\udce9", "/a/\udcc3\udca9", "é"])
    environment.cache_clear()
    recorded = environment()["argv"]
    environment.cache_clear()
    assert recorded == ["paftbench", "run", "--out", "ré", r"x/\xe9", "é", "é"]
