"""Reads reports in tests: their tags and texts, and the lines of their table of trials."""

import re
from html.parser import HTMLParser


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


def trials_of(html: str) -> tuple[list[str], list[dict[str, tuple[str, str]]]]:
    """Column names, and per trial the (key, text) of each column."""
    part = html[html.index('<section id="trials">') : html.index('<section id="failures">')]
    names = re.findall(r'data-name="([^"]*)"', part)
    lines = part.split("<tr data-outcome")[1:]
    cells = [re.findall(r'<td data-key="([^"]*)"[^>]*>([^<]*)</td>', line) for line in lines]
    return names, [dict(zip(names, line, strict=True)) for line in cells]
