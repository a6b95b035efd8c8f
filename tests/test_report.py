"""`paftbench report`: one file that loads nothing, runs nothing but its own script, and says what the records say."""

import re
import subprocess
import sys
import tomllib
from base64 import b64decode
from collections.abc import Iterator
from html.parser import HTMLParser
from math import inf, nan
from pathlib import Path
from typing import Any

import pytest
from synthetic_core import core
from synthetic_results import FAULT, FLIPS, NOISE, RESNET, cell, golden, quickstart, spec, steps_rows, write_trial

from paftbench.analysis.figures import FIGURES
from paftbench.analysis.report import images as images_module
from paftbench.analysis.report import page as page_module
from paftbench.analysis.report import write
from paftbench.analysis.report.failures import tail
from paftbench.analysis.report.page import page
from paftbench.analysis.table import columns, rows
from paftbench.cli.main import exit_code

EVIL = "</td></script><script>alert('&lt;')</script><img src=x onerror=alert(1)>\"'`{{ 7*7 }}"


class Found(HTMLParser):
    """Tags with their attributes, and the text inside each element with an id or of a cell."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data

    def attributes(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


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


def test_the_page_loads_nothing(full: str) -> None:
    found = Found(full)
    loading = [value for _, attributes in found.tags for key, value in attributes.items() if key in ("src", "srcset")]
    links = [str(attributes.get("href")) for _, attributes in found.tags if "href" in attributes]
    assert loading and all(str(value).startswith("data:image/") for value in loading)
    assert links and all(link.startswith("#") for link in links)
    assert not {tag for tag, _ in found.tags} & {"link", "iframe", "object", "embed", "form", "base", "video", "audio"}
    outside = re.sub(r"data:image/[^\"]*", "", full)
    assert not re.search(r"https?:|url\(|@import|//cdn", outside)
    (policy,) = [
        str(a["content"]) for a in found.attributes("meta") if a.get("http-equiv") == "Content-Security-Policy"
    ]
    assert policy.startswith("default-src 'none'; img-src data:") and "unsafe" not in policy


def test_every_anchor_has_its_section(full: str) -> None:
    found = Found(full)
    ids = {attributes.get("id") for _, attributes in found.tags}
    assert {str(attributes["href"])[1:] for attributes in found.attributes("a")} <= ids


def test_every_figure_is_there_or_says_why_not(full: str) -> None:
    found = Found(full)
    drawn = {str(attributes["id"]).removeprefix("figure-") for attributes in found.attributes("figure")}
    assert {"overview", "curves", "degree", "divergence", "timeline"} <= drawn <= {*FIGURES}
    for name in {*FIGURES} - drawn:
        assert re.search(f"No figure <em>{name}</em>: [^<]+", full)
    for attributes in found.attributes("img"):
        kind, _, content = str(attributes["src"]).partition(";base64,")
        assert kind == "data:image/svg+xml" and b64decode(content).rstrip().endswith(b"</svg>")
        assert int(attributes["width"] or 0) > 300 and int(attributes["height"] or 0) > 100 and attributes["alt"]


def test_a_figure_that_is_large_as_svg_becomes_pixels(sweep: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(images_module, "LARGEST_SVG", 1000)
    monkeypatch.setattr(images_module, "FIGURES", ("timeline",))
    (source,) = [str(attributes["src"]) for attributes in Found(page(sweep)).attributes("img")]
    assert b64decode(source.removeprefix("data:image/png;base64,")).startswith(b"\x89PNG")


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


def trials_of(html: str) -> tuple[list[str], list[dict[str, tuple[str, str]]]]:
    """Column names, and per trial the (key, text) of each column."""
    part = html[html.index('<section id="trials">') : html.index('<section id="failures">')]
    names = re.findall(r'data-name="([^"]*)"', part)
    lines = part.split("<tr data-outcome")[1:]
    cells = [re.findall(r'<td data-key="([^"]*)"[^>]*>([^<]*)</td>', line) for line in lines]
    return names, [dict(zip(names, line, strict=True)) for line in cells]


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
    for seed, metric in enumerate((nan, inf, -inf, None)):
        trial = spec(RESNET, steps=4, seed=seed, faults=[FAULT], mitigations=[])
        write_trial(tmp_path, trial, grid="noise", labels={"mitigation": "ddp"}, metric=(metric,) * 3, drawn=1)
    _, trials = trials_of(page(tmp_path))
    assert [trial["worst_rank"] for trial in trials] == [
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
def test_whatever_records_say_is_shown_as_text(tmp_path: Path) -> None:
    trial = spec(RESNET, steps=4, seed=0, faults=[{**FAULT, "name": EVIL, "model": EVIL}], mitigations=[])
    id = write_trial(
        tmp_path, trial, grid=EVIL, labels={"mitigation": EVIL, EVIL: EVIL}, outcome="error", drawn=1, reason=EVIL,
        experiment=EVIL, environment={"argv": ["paftbench", EVIL], "versions": {EVIL: EVIL}}, metric_name=EVIL,
    )  # fmt: skip
    (tmp_path / id / "log.txt").write_text(EVIL)
    planned = tmp_path / id / "trial.json"
    planned.write_text(planned.read_text().replace('"made_up"', '"</title><script>alert(2)</script>"'))
    found = Found(page(tmp_path, about=EVIL))
    assert len(found.attributes("script")) == 1 and not found.attributes("img")
    assert not [key for _, attributes in found.tags for key in attributes if key.startswith("on")]
    assert found.text.count(EVIL) >= 9 and "49" not in found.text.replace(EVIL, "")
    assert "</title><script>alert(2)</script>" in found.text


def test_names_are_text_inside_figures_too(tmp_path: Path) -> None:
    name = "<script>alert(1)</script>"
    golden(tmp_path, [0.9])
    cell(tmp_path, name, [0.8], grid=name)
    for attributes in Found(page(tmp_path)).attributes("img"):
        svg = b64decode(str(attributes["src"]).partition(";base64,")[2])
        assert b"<script" not in svg


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


def test_the_end_of_a_long_line_is_enough(tmp_path: Path) -> None:
    assert tail(tmp_path / "log.txt") == ""
    (tmp_path / "log.txt").write_text("short\n")
    assert tail(tmp_path / "log.txt") == "short"
    (tmp_path / "log.txt").write_bytes("é".encode() * 100_000)
    assert tail(tmp_path / "log.txt").startswith("[...]\n") and len(tail(tmp_path / "log.txt")) < 10_000


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


@pytest.mark.usefixtures("plain")
def test_a_report_of_250_trials_has_a_small_table(tmp_path: Path) -> None:
    core(tmp_path, steps=10)
    html = page(tmp_path)
    assert len(trials_of(html)[1]) == 245 and len(html) < 1_500_000
    assert len(FIGURES) * images_module.LARGEST_SVG * 4 / 3 + 1_500_000 < 10_000_000


@pytest.mark.slow
def test_a_whole_report_of_250_trials_is_below_10_mb(tmp_path: Path) -> None:
    core(tmp_path, steps=400)
    assert write(tmp_path).stat().st_size < 10_000_000


@pytest.mark.usefixtures("plain")
def test_the_command_prints_the_path(sweep: Path, tmp_path: Path, capsys: Any) -> None:
    assert exit_code(["report", str(sweep)]) == 0
    assert capsys.readouterr().out == f"{sweep / 'report.html'}\n"
    assert exit_code(["report", str(sweep), "--to", str(tmp_path / "mine.html")]) == 0
    assert (tmp_path / "mine.html").read_bytes() == (sweep / "report.html").read_bytes()
    (one, *_) = sorted(path.parent for path in sweep.glob("*/trial.json"))
    assert exit_code(["report", str(one)]) == 0 and len(trials_of((one / "report.html").read_text())[1]) == 1


@pytest.mark.usefixtures("plain")
def test_a_shipped_experiment_is_introduced_by_its_own_words(tmp_path: Path) -> None:
    golden(tmp_path, [0.9])
    for path in tmp_path.glob("*/trial.json"):
        path.write_text(path.read_text().replace('"made_up"', '"quickstart"'))
    assert exit_code(["report", str(tmp_path)]) == 0
    assert "Noise and bit flips on a small ResNet" in Found((tmp_path / "report.html").read_text()).text


@pytest.mark.parametrize(
    ("given", "to", "expected"),
    [
        ("nowhere", None, "nowhere is not a directory of results"),
        ("empty", None, "empty holds no trials"),
        ("other", None, "has schema 2"),
        ("unfinished", None, "nothing has finished"),
        ("fine", "nowhere/x.html", "nowhere is not a directory"),
        ("fine", "empty", "empty is a directory"),
    ],
)
def test_a_mistake_is_one_line_and_writes_nothing(
    given: str, to: str | None, expected: str, tmp_path: Path, capsys: Any
) -> None:
    (tmp_path / "empty").mkdir()
    golden(tmp_path / "other", [0.9], schema=2)
    golden(tmp_path / "unfinished", [0.9], outcome=None)
    golden(tmp_path / "fine", [0.9])
    before = sorted(tmp_path.rglob("*"))
    extra = [] if to is None else ["--to", str(tmp_path / to)]
    assert exit_code(["report", str(tmp_path / given), *extra]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("paftbench: error: ") and err.count("\n") == 1 and expected in err
    assert sorted(tmp_path.rglob("*")) == before


def test_the_pages_parts_travel_with_the_package() -> None:
    root = Path(__file__).resolve().parent.parent
    globs = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]["paftbench"]
    shipped = {path for glob in globs for path in (root / "paftbench").glob(glob)}
    parts = [path for path in Path(page_module.__file__).parent.iterdir() if path.suffix in (".html", ".css", ".js")]
    assert len(parts) == 3 and {*parts} <= shipped


def test_a_report_needs_no_torch(tmp_path: Path) -> None:
    golden(tmp_path, [0.9])
    code = (
        "import sys\nfrom paftbench.cli.main import exit_code\n"
        f"assert exit_code(['report', {str(tmp_path)!r}]) == 0\nsys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], stdout=subprocess.DEVNULL, check=False).returncode == 0


def test_captions_say_what_the_degree_figure_draws() -> None:
    _, caption = images_module.CAPTIONS["degree"]
    bands, limit = caption.split("The averaging limit")
    assert "band is the range of the golden runs" in bands and limit.startswith(" is a line")
