"""What matplotlib says of itself and a reader of results has no use for: nothing on stderr but ours."""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

# A home that cannot be written to, of two lines, and the first start on a machine: it works, a little slower.
_OF_ITS_CACHE: Final = (
    "mkdir -p failed for path", "%s is not a writable directory", "Matplotlib created a temporary cache directory",
    "Matplotlib is building the font cache", "Could not save font_manager cache",
)  # fmt: skip


def _is_news(record: logging.LogRecord) -> bool:
    return not str(record.msg).startswith(_OF_ITS_CACHE)


def hush() -> None:
    """Keep matplotlib from telling of its caches; before it is imported, since it does so then."""
    for name in ("matplotlib", "matplotlib.font_manager"):
        logging.getLogger(name).addFilter(_is_news)


@contextmanager
def drawing() -> Iterator[None]:
    """Letters that the font has not are boxes in the figure, and no line each on stderr."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r"Glyph \d+ .* missing from", category=UserWarning)
        yield
