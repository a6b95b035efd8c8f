"""What a report says: summary, cells, trials, failures, environment and command, as the records say it."""

import re
from collections.abc import Iterator
from math import inf, nan
from pathlib import Path
from typing import Any

import pytest
from support.report_pages import Found, trials_of
from support.synthetic_results import (
    FAULT,
    FLIPS,
    NOISE,
    RESNET,
    cell,
    golden,
    quickstart,
    spec,
    steps_rows,
    write_trial,
)

from paftbench.analysis.report import page as page_module
from paftbench.analysis.report import write
from paftbench.analysis.report.failures import tail
from paftbench.analysis.report.page import page
from paftbench.analysis.table import columns, rows


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return quickstart(tmp_path_factory.mktemp("report") / "sweep", seeds=3, steps=30)


@pytest.fixture(scope="module")
def full(sweep: Path) -> str:
    return write(sweep, about="What it is about.").read_text(encoding="utf-8")


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Pages without figures, which take most of the time."""
    monkeypatch.setattr(page_module, "images", lambda sweep: [])
    yield


def test_the_summary_counts_outcomes_and_says_what_was_run(full: str, sweep: Path) -> None:
    text = Found(full).text
    outcomes = re.findall(r"<strong>(\d+)</strong> ([\w ]+)</li>", full)
    assert sum(int(count) for count, _ in outcomes) == len(list(sweep.glob("*/trial.json")))
    assert [name for _, name in outcomes] == ["masked", "degraded"]
    assert "made_up" in text and "What it is about." in text
    for fact in ("resnet nano on digits", "worst_rank accuracy", "gaussian_noise", "bit_flip", "clip_paft_sync"):
        assert fact in text
    assert "3 (0, 1, 2); fewer than 3 seeds: numbers, no claim; 3 or 4 seeds: every point and the range" in text


def test_the_cells_are_those_of_the_table(full: str, sweep: Path) -> None:
    part = full[full.index('<section id="cells">') : full.index('<section id="trials">')]
    shown = [re.findall(r"<td[^>]*>([^<]*)</td>", line) for line in part.split("<tr")[2:]]
    texts = {heading: text for heading, text in columns(rows(sweep)).items() if {*text} != {"-"}}
    assert [*texts] == re.findall(r"<th[^>]*>([^<]*)</th>", part) and "overhead" not in texts
    assert shown == [list(line) for line in zip(*texts.values(), strict=True)]
    assert "low..high: the range of 3 or 4 seeds." in part and "shown, no claim" in part


def test_every_trial_is_a_line_with_keys_to_sort_by(full: str, sweep: Path) -> None:
    names, trials = trials_of(full)
    assert len(trials) == len(list(sweep.glob("*/trial.json")))
    assert names[:4] == ["grid", "mitigation", "degree", "seed"]
    assert "overhead" not in names and "experiment" not in names and names[-2:] == ["name", "id"]
    assert [trial["grid"][1] for trial in trials[:5]] == ["golden"] * 5
    degrees = [trial["degree"] for trial in trials]
    assert ("", "-") in degrees and ("0.001", "0.001") in degrees
    by_id = {trial["id"][1]: trial for trial in trials}
    assert len(by_id) == len(trials) and all((sweep / id).is_dir() for id in by_id)
    assert float(trials[0]["worst_rank"][0]) == pytest.approx(float(trials[0]["worst_rank"][1]), abs=5e-4)


@pytest.mark.usefixtures("plain")
def test_a_gap_that_is_none_is_said_in_words(tmp_path: Path) -> None:
    golden(tmp_path, [0.99])
    cell(tmp_path, "ddp", [0.98])
    assert [trial["gap_closed"] for trial in trials_of(page(tmp_path))[1]] == [("", "-"), ("", "no gap")]


@pytest.mark.usefixtures("plain")
def test_numbers_that_are_none_have_keys_that_javascript_reads(tmp_path: Path) -> None:
    for seed, ratio in enumerate((nan, inf, -inf, None)):
        trial = spec(RESNET, steps=4, seed=seed, faults=[FAULT], mitigations=[])
        nsr = {"median": ratio, "max": None}
        write_trial(tmp_path, trial, grid="noise", labels={"mitigation": "ddp"}, metric=(0.5,) * 3, drawn=1, nsr=nsr)
    _, trials = trials_of(page(tmp_path))
    assert [trial["nsr_median"] for trial in trials] == [
        ("NaN", "nan"), ("Infinity", "inf"), ("-Infinity", "-inf"), ("", "-"),
    ]  # fmt: skip


@pytest.mark.usefixtures("plain")
def test_trials_with_two_swept_degrees_keep_both(tmp_path: Path) -> None:
    faults = [{**NOISE, "degree": 0.5}, {**FLIPS, "degree": 0.25}]
    trial = spec(RESNET, steps=4, seed=0, faults=faults, mitigations=[])
    labels = {"faults.noise.degree": 0.5, "faults.flips.degree": 0.25}
    write_trial(tmp_path, trial, grid="both", labels=labels, drawn=1)
    names, _ = trials_of(page(tmp_path))
    assert names[1:4] == ["mitigation", "faults.noise.degree", "faults.flips.degree"]


@pytest.mark.usefixtures("plain")
def test_failures_show_their_reason_and_the_end_of_their_log(tmp_path: Path) -> None:
    golden(tmp_path, [0.9])
    cell(tmp_path, "ddp", [None], outcome="crashed", reason="signal 11")
    cell(tmp_path, "paft_sync", [None], outcome="error", reason="Traceback\nValueError: ours")
    trial = spec(RESNET, steps=3, seed=0, faults=[FAULT], mitigations=[{"name": "regather"}])
    broken = steps_rows(trial, [0.1, 0.2, 0.3], [None] * 3, lambda step: 1)
    broken[1]["loss"] = [1.0, nan]
    write_trial(
        tmp_path, trial, grid="noise", labels={"mitigation": "limit"}, outcome="nonfinite", rows=broken, drawn=1
    )
    for path in tmp_path.iterdir():
        (path / "log.txt").write_text("".join(f"line {i}\n" for i in range(100)))
    html = page(tmp_path)
    part = html[html.index('<section id="failures">') : html.index('<section id="environment">')]
    assert re.findall(r"<code>(noise/[^<]*)</code></summary>", part) == [
        "noise/mitigation=paft_sync/s0", "noise/mitigation=ddp/s0", "noise/mitigation=limit/s0",
    ]  # fmt: skip
    assert "Traceback\nValueError: ours" in part and "signal 11" in part
    assert "the first loss that was NaN or infinite is that of step 1" in part
    assert part.count("line 99") == 3 and part.count("[...]\nline 60\n") == 3 and "line 59" not in part
    assert part.count("<details open>") == 1


def test_the_end_of_a_long_line_is_enough() -> None:
    assert tail(b"") == ""
    assert tail(b"short\n") == "short"
    long = tail("é".encode() * 100_000)
    assert long.startswith("[...]\n") and len(long) < 10_000


def environment(**changed: Any) -> dict[str, Any]:
    recorded = {
        "argv": ["/usr/bin/paftbench", "run", "x", "-k", "a and b"],
        "versions": {"torch": "2.14.1"},
        "gpus": [],
    }
    return recorded | {"git": {"sha": "abc", "dirty": False}, **changed}


@pytest.mark.usefixtures("plain")
def test_environments_that_differ_are_pointed_out(tmp_path: Path) -> None:
    golden(tmp_path, [0.9, 0.9], environment=environment())
    cell(tmp_path, "ddp", [0.8], environment=environment(git={"sha": "def", "dirty": True}))
    html = page(tmp_path)
    part = html[html.index('<section id="environment">') : html.index('<section id="command">')]
    assert "Not all trials ran in the same environment." in part
    assert "<dt>versions.torch</dt><dd>2.14.1</dd>" in part and "<dt>gpus</dt><dd>none</dd>" in part
    different = re.findall(r'<th scope="row">([^<]*)</th><td>([^<]*)</td><td class="number">(\d+)</td>', part)
    assert different == [
        ("git.sha", "abc", "2"), ("git.sha", "def", "1"), ("git.dirty", "no", "2"), ("git.dirty", "yes", "1"),
    ]  # fmt: skip
    golden(tmp_path / "alike", [0.9, 0.9], environment=environment())
    assert "Not all trials" not in page(tmp_path / "alike")


@pytest.mark.usefixtures("plain")
def test_the_command_is_the_recorded_one_else_the_experiments(tmp_path: Path) -> None:
    golden(tmp_path, [0.9, 0.9, 0.9], environment=environment())
    cell(tmp_path, "ddp", [0.8], environment={"argv": ["trial.py", "0123"]})
    html = page(tmp_path)
    assert re.findall(r'<pre class="command">([^<]*)</pre>', html) == [
        "paftbench run x -k &#39;a and b&#39;", "paftbench run made_up",
    ]  # fmt: skip
    assert re.search(r"3 trials</p>.*1 trials?</p>", html, re.DOTALL)


def test_a_sweep_of_golden_runs_alone_has_a_report(tmp_path: Path) -> None:
    golden(tmp_path, [0.9, 0.8], curve=[(0.1,) * 3, (0.9,) * 3])
    found = Found(page(tmp_path))
    assert "No figure degree and quality:" in found.text and found.attributes("figure")
