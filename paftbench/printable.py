"""Text from records and files as a terminal, a page or a figure may show it."""

import re
from typing import Final

# Control characters but for tab and line feed, marks that turn the direction of writing, and halves of surrogate pairs.
_HIDDEN: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff\ufffe\uffff]"
)


def printable(text: str) -> str:
    r"""The text with what would act on a terminal, rather than show, written out: `\x1b`."""
    return _HIDDEN.sub(lambda found: ascii(found[0])[1:-1], text)


def unicode(text: str) -> str:
    r"""The text with halves of surrogate pairs, which stand for bytes of another encoding, written out: `\udce9`."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()
