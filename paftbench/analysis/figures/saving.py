"""Figures as files: whole or not at all, and the same bytes each time."""

from collections.abc import Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

from paftbench.analysis.figures.quiet import drawing
from paftbench.store.files import replacing

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Without the date the same results give the same file.
METADATA: Final[Mapping[str, dict[str, Any]]] = {"png": {}, "pdf": {"CreationDate": None}, "svg": {"Date": None}}
DPI: Final = 180


def save(figure: "Figure", path: Path, format: str) -> Path:
    """Write a figure to `path`, which is never seen half-written; not synced, since it can be drawn again."""
    with replacing(path, durable=False) as temporary:
        render(figure, temporary, format)
    return path


def render(figure: "Figure", to: Path | IO[bytes], format: str) -> None:
    """A figure's bytes in one of the formats of `METADATA`."""
    with drawing():
        figure.savefig(to, format=format, dpi=DPI, metadata=METADATA[format])
