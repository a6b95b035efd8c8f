"""The sweep's figures as images inside the page."""

import importlib
from base64 import b64encode
from collections.abc import Iterator
from dataclasses import dataclass
from io import BytesIO
from typing import TYPE_CHECKING, Final

from paftbench.analysis.figures import FIGURES
from paftbench.analysis.figures.saving import render
from paftbench.analysis.figures.style import RC
from paftbench.analysis.panels import NothingToDraw
from paftbench.analysis.runs import Sweep

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CAPTIONS: Final = {
    "overview": (
        "Overview",
        "Each workload and fault at its largest degree: quality and divergence over steps, quality and gap closed at "
        "the end.",
    ),
    "curves": ("Curves", "The judged metric over steps. Thin lines are seeds, the thick line is their median."),
    "degree": (
        "Degree and quality",
        "Quality at the end against the strength of the fault. Every point is a trial, lines go through the means over "
        "seeds; the grey band is the range of the golden runs, bands in a line's colour are 95 % intervals. The "
        "averaging limit is a line of its own: what perfect averaging would reach.",
    ),
    "divergence": (
        "Divergence",
        "How far the replicas' parameters drifted from their mean, on a log axis. A synchronisation makes it fall.",
    ),
    "timeline": ("Timeline", "Which rank was struck at which step, and when replicas were synchronised."),
    "periods": ("Periods", "The synchronisation periods that a mitigation chose as training went on."),
    "overhead": ("Overhead", "Time of a step over plain DDP's in the same sweep, from processes with real DDP."),
}
# Lines of long sweeps make an SVG larger and slower than its pixels.
LARGEST_SVG = 800_000
PIXELS_PER_INCH = 96


@dataclass(frozen=True, kw_only=True)
class Image:
    """A figure, or in `reason` why there is none; width and height in CSS pixels."""

    name: str
    title: str
    caption: str
    uri: str = ""
    width: int = 0
    height: int = 0
    reason: str = ""


def images(sweep: Sweep) -> list[Image]:
    """Every figure that the sweep has something for, the overview first, then those it has nothing for."""
    order = list(dict.fromkeys(name for name in (*CAPTIONS, *FIGURES) if name in FIGURES))
    return sorted(_images(sweep, order), key=lambda image: bool(image.reason))


def _images(sweep: Sweep, names: list[str]) -> Iterator[Image]:
    import matplotlib

    for name in names:
        title, caption = CAPTIONS.get(name, (name.capitalize(), ""))
        try:
            with matplotlib.rc_context(RC):
                figure = importlib.import_module(f"paftbench.analysis.figures.{name}").figure(sweep)
                uri = _uri(figure)
        except NothingToDraw as reason:
            yield Image(name=name, title=title, caption=caption, reason=str(reason))
            continue
        width, height = (round(PIXELS_PER_INCH * inches) for inches in figure.get_size_inches())
        yield Image(name=name, title=title, caption=caption, uri=uri, width=width, height=height)


def _uri(figure: "Figure") -> str:
    content, kind = _saved(figure, "svg"), "svg+xml"
    if len(content) > LARGEST_SVG:
        content, kind = _saved(figure, "png"), "png"
    return f"data:image/{kind};base64,{b64encode(content).decode()}"


def _saved(figure: "Figure", format: str) -> bytes:
    file = BytesIO()
    render(figure, file, format)
    return file.getvalue()
