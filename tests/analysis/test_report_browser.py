"""The report in a real browser: it sorts, it filters, every figure is seen, and nothing is asked of the network."""

import re
from collections.abc import Iterator
from math import inf, nan
from pathlib import Path
from typing import Any

import pytest
from support.browser import Page, browser, chromium
from support.synthetic_results import FAULT, RESNET, quickstart, spec, write_trial

from paftbench.analysis.report import write

pytestmark = pytest.mark.skipif(chromium() is None, reason="no Chromium on the PATH (Debian: apt install chromium)")

ROWS = "[...document.querySelectorAll('table.sortable tbody tr')]"
EVIL = "<img src=x onerror=\"document.title='struck'\"><script>document.title='struck'</script>"


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sweep with every kind of number in it, and a name that would like to run."""
    directory = quickstart(tmp_path_factory.mktemp("browser") / "sweep", seeds=3, steps=30)
    for seed, odd in enumerate((nan, inf, -inf, None, 1e-12, 250.0)):
        trial = spec(RESNET, steps=4, seed=seed, faults=[FAULT], mitigations=[])
        outcome = "crashed" if odd is None else "nonfinite"
        labels = {"mitigation": EVIL}
        write_trial(directory, trial, grid="odd", labels=labels, outcome=outcome, drawn=seed * 7,
                    divergence={"final": odd, "max": odd, "before_sync": None})  # fmt: skip
    return write(directory, about=EVIL)


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with browser(tmp_path_factory.mktemp("profile")) as page:
        yield page


@pytest.fixture
def page(tab: Page, report: Path) -> Page:
    tab.open(report)
    return tab


def column(page: Page, name: str, what: str = "dataset.key") -> list[str]:
    """A column of the visible rows, from top to bottom."""
    index = f"document.querySelector('th[data-name=\"{name}\"]').cellIndex"
    shown = f"{ROWS}.filter(row => row.checkVisibility())"
    found: list[str] = page.value(f"(i => {shown}.map(row => row.cells[i].{what}))({index})")
    return found


def sort_by(page: Page, name: str) -> None:
    page.click(f'th[data-name="{name}"] button')


def outcomes(page: Page) -> dict[str, int]:
    shown = column(page, "outcome")
    return {outcome: shown.count(outcome) for outcome in shown}


def test_a_click_sorts_numbers_as_numbers_and_what_is_not_known_last(page: Page) -> None:
    sort_by(page, "divergence_max")
    up = column(page, "divergence_max")
    known = [key for key in up if key not in ("", "NaN")]
    assert [float(key) for key in known] == sorted(float(key.replace("Infinity", "inf")) for key in known)
    assert known[0] == "-Infinity" and known[-1] == "Infinity" and up[-2:] == ["NaN", ""]
    assert up.index("1e-12") < up.index("250.0") and len(known) > 40
    assert page.value("document.querySelector('th[data-name=divergence_max]').ariaSort") == "ascending"
    sort_by(page, "divergence_max")
    assert column(page, "divergence_max") == [*reversed(up[:-1]), ""]
    assert page.value("document.querySelector('th[data-name=divergence_max]').ariaSort") == "descending"
    assert page.value("document.querySelectorAll('th[aria-sort]').length") == 1


@pytest.mark.parametrize("name", ["strikes_drawn", "seed", "degree"])
def test_other_numbers_sort_as_numbers_too(page: Page, name: str) -> None:
    sort_by(page, name)
    known = [float(key) for key in column(page, name) if key]
    assert known == sorted(known) and len({*known}) > 2


def test_text_sorts_as_text_and_equal_rows_keep_their_order(page: Page) -> None:
    names = column(page, "name")
    sort_by(page, "grid")
    grids = column(page, "grid")
    assert grids == sorted(grids) and grids[0] == "flips"
    after = column(page, "name")
    flips = [name for name in names if name.startswith("flips/")]
    assert after[: len(flips)] == flips and sorted(after) == sorted(names)


def test_the_keyboard_sorts_as_well(page: Page) -> None:
    page.value("document.querySelector('th[data-name=seed] button').focus()")
    for kind in ("keyDown", "keyUp"):
        page.send("Input.dispatchKeyEvent", type=kind, key="Enter", code="Enter", text="\r", windowsVirtualKeyCode=13)
    assert page.value("document.querySelector('th[data-name=seed]').ariaSort") == "ascending"


def test_words_filter_rows(page: Page) -> None:
    everything = len(column(page, "name"))
    page.click("#filter")
    page.type("NOISE paft_sync")
    names = column(page, "name")
    assert len(names) == 9 and all("noise" in name and "paft_sync" in name for name in names)
    assert page.value("document.getElementById('shown').textContent") == f"9 of {everything} trials"
    page.type(" nothing like it")
    assert column(page, "name") == []


def test_outcomes_filter_rows_and_a_sorted_table_stays_filtered(page: Page) -> None:
    before = outcomes(page)
    assert {"masked", "degraded", "nonfinite", "crashed"} <= {*before}
    page.click('.controls input[value="masked"]')
    after = outcomes(page)
    assert after == {outcome: count for outcome, count in before.items() if outcome != "masked"}
    sort_by(page, "worst_rank")
    assert outcomes(page) == after
    page.click('.controls input[value="masked"]')
    assert outcomes(page) == before


def test_every_figure_is_seen(page: Page) -> None:
    images: list[dict[str, Any]] = page.value(
        "Promise.all([...document.images].map(async image => { await image.decode(); return {"
        "name: image.closest('figure').id, width: image.naturalWidth, height: image.naturalHeight,"
        "shown: image.getBoundingClientRect().width, seen: image.checkVisibility(),"
        "inside: image.getBoundingClientRect().right <= innerWidth }}))"
    )
    assert {"figure-overview", "figure-curves", "figure-divergence"} <= {image["name"] for image in images}
    for image in images:
        assert image["width"] > 300 and image["height"] > 100 and image["seen"] and image["inside"], image
        assert image["shown"] > 300


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_figures_are_drawn_with_ink_in_light_and_dark(page: Page, scheme: str) -> None:
    set_scheme(page, scheme)
    colours: dict[str, int] = page.value(
        "(async () => { const found = {}; for (const image of document.images) { await image.decode();"
        "const canvas = new OffscreenCanvas(300, 150), pen = canvas.getContext('2d');"
        "pen.drawImage(image, 0, 0, 300, 150); const pixels = pen.getImageData(0, 0, 300, 150).data;"
        "const seen = new Set(); for (let i = 0; i < pixels.length; i += 4) seen.add(pixels.slice(i, i + 3).join());"
        "found[image.closest('figure').id] = seen.size; } return found; })()"
    )
    assert colours and all(count > 50 for count in colours.values()), colours


def set_scheme(page: Page, scheme: str) -> None:
    page.send("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("selector", ["body", ".note", ".masked", ".degraded", ".nonfinite", "td.crashed", "thead th"])
def test_text_has_contrast_in_light_and_dark(page: Page, scheme: str, selector: str) -> None:
    set_scheme(page, scheme)
    ink, paper = page.value(
        "(element => { const style = part => getComputedStyle(part); let under = element;"
        "while (style(under).backgroundColor === 'rgba(0, 0, 0, 0)') under = under.parentElement;"
        "return [style(element).color, style(under).backgroundColor] })"
        f"(document.querySelector('main {selector}') ?? document.querySelector('{selector}'))"
    )
    light, dark = sorted((luminance(ink), luminance(paper)), reverse=True)
    assert (light + 0.05) / (dark + 0.05) >= 4.5, (ink, paper)  # WCAG 2.2, 1.4.3
    assert (luminance(paper) > 0.5) == (scheme == "light")


def luminance(colour: str) -> float:
    """Relative luminance of `rgb(r, g, b)` (https://www.w3.org/TR/WCAG22/#dfn-relative-luminance)."""
    parts = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
    red, green, blue = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_nothing_complains_nothing_is_fetched_and_no_name_runs(page: Page, report: Path) -> None:
    page.value("new Promise(done => setTimeout(done, 200))")
    assert page.complaints() == []
    assert page.requests() == [report.as_uri()]
    assert page.value("document.title") == "made_up · paftbench report"
    assert EVIL in page.value("document.querySelector('main').textContent")


def test_a_script_that_got_in_would_not_run(tab: Page, report: Path, tmp_path: Path) -> None:
    html = report.read_text(encoding="utf-8")
    struck = tmp_path / "struck.html"
    struck.write_text(html.replace("<main>", f"<main>{EVIL}<img src='http://127.0.0.1:9/x.png'>"), encoding="utf-8")
    tab.open(struck)
    assert tab.value("document.title") == "made_up · paftbench report"
    assert len(tab.complaints()) >= 3  # the page's policy says so


def test_without_javascript_everything_can_be_read(tab: Page, report: Path) -> None:
    tab.send("Emulation.setScriptExecutionDisabled", value=True)
    try:
        tab.open(report)
        tree = tab.send("DOM.getDocument", depth=-1)
        controls = tab.send("DOM.querySelector", nodeId=tree["root"]["nodeId"], selector=".controls[hidden]")
        assert controls["nodeId"] != 0
        rows = tab.send("DOM.querySelectorAll", nodeId=tree["root"]["nodeId"], selector="table.sortable tbody tr")
        assert len(rows["nodeIds"]) > 40
        buttons = tab.send("DOM.querySelectorAll", nodeId=tree["root"]["nodeId"], selector="th button")
        assert buttons["nodeIds"] == []
    finally:
        tab.send("Emulation.setScriptExecutionDisabled", value=False)


def test_a_narrow_window_shows_whole_figures_and_does_not_scroll_sideways(tab: Page, report: Path) -> None:
    size = {"width": 420, "height": 800, "deviceScaleFactor": 1, "mobile": False}
    tab.send("Emulation.setDeviceMetricsOverride", **size)
    try:
        tab.open(report)
        assert tab.value("document.documentElement.scrollWidth") <= 420
        right = "Math.max(...[...document.images].map(image => image.getBoundingClientRect().right))"
        assert tab.value(right) <= 420
    finally:
        tab.send("Emulation.clearDeviceMetricsOverride")
