"""Numbers and tables as plain text."""

from collections.abc import Collection, Mapping, Sequence
from io import StringIO
from math import isfinite

from rich import box
from rich.console import Console
from rich.table import Table

from paftbench.printable import printable
from paftbench.store.directory import encode_line


def number(value: float | None, digits: int = 3) -> str:
    """A measured value: `digits` significant digits, three decimals below 10; "-" where it was not measured."""
    if value is None:
        return "-"
    if not isfinite(value):
        return f"{value}"
    if value != 0 and not 1e-3 <= abs(value) < 1e5:
        return f"{value:.{digits - 1}e}"
    return f"{value:.3f}" if abs(value) < 10 else f"{value:.{digits}g}" if abs(value) < 1e3 else f"{value:.0f}"


def compact(count: float | None) -> str:
    """A count: 950, 12.3k, 40.1M."""
    if count is None:
        return "-"
    power = 0
    while power < 4 and round(count) >= 1000:
        count, power = count / 1000, power + 1
    return f"{count:.0f}" if power == 0 else f"{count:.3g}{'kMGT'[power - 1]}"


def size(count: float | None) -> str:
    """Bytes: 0 B, 12.3 MB."""
    text = compact(count)
    if text == "-":
        return text
    return f"{text[:-1]} {text[-1]}B" if text[-1].isalpha() else f"{text} B"


def counted(outcomes: Mapping[str, int]) -> str:
    """`masked 2, degraded 1`; the number is left out where there is one kind of one run."""
    if list(outcomes.values()) == [1]:
        return next(iter(outcomes))
    return ", ".join(f"{outcome} {count}" for outcome, count in outcomes.items())


def needed(columns: Mapping[str, Sequence[str]]) -> int:
    """How wide `columns` are when nothing is folded."""
    return sum(
        2 + max(len(line) for text in (name, *texts) for line in text.splitlines() or [""])
        for name, texts in columns.items()
    )  # 2: the gap between columns


def draw(
    columns: Mapping[str, Sequence[str]], *, sections: Sequence[object], width: int, left: Collection[str] = ()
) -> str:
    """A table without colours, a rule where `sections` changes; numbers are right-aligned, columns in `left` not."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), show_edge=False)
    for name in columns:
        table.add_column(name, justify="left" if name in left else "right", overflow="fold")
    lines = list(zip(*columns.values(), strict=True))
    for i, line in enumerate(lines):
        last_of_section = i + 1 < len(lines) and sections[i] != sections[i + 1]
        table.add_row(*map(printable, line), end_section=last_of_section)
    out = StringIO()
    Console(file=out, width=width, color_system=None, highlight=False, markup=False).print(table)
    return "\n".join(line.rstrip() for line in out.getvalue().rstrip().splitlines())


def to_json(payload: Sequence[object]) -> str:
    """Rows as JSON; NaN and infinities as the strings that result files use."""
    return "[" + ",\n".join(encode_line({"row": row})[len('{"row":') : -2] for row in payload) + "]"
