"""`paftbench report`: one file that loads nothing, runs nothing but its own script, and shows records as text."""

import re
import subprocess
import sys
import tomllib
from base64 import b64decode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.checkout import ROOT
from support.report_pages import Found, trials_of
from support.synthetic_core import core
from support.synthetic_results import FAULT, RESNET, cell, golden, quickstart, spec, write_trial

from paftbench.analysis.figures import FIGURES
from paftbench.analysis.report import images as images_module
from paftbench.analysis.report import page as page_module
from paftbench.analysis.report import write
from paftbench.analysis.report.page import page
from paftbench.cli.main import exit_code

EVIL = "</td></script><script>alert('&lt;')</script><img src=x onerror=alert(1)>\"'`{{ 7*7 }}"


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
    root = ROOT
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
