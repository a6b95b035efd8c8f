"""`paftbench plot`: the figures of a sweep."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from paftbench.cli.options import message, say


class FigureName(StrEnum):
    """What can be drawn."""

    CURVES = "curves"
    DEGREE = "degree"
    DIVERGENCE = "divergence"
    TIMELINE = "timeline"
    PERIODS = "periods"
    OVERHEAD = "overhead"
    OVERVIEW = "overview"
    ALL = "all"


class FileFormat(StrEnum):
    """What it can be written as."""

    PNG = "png"
    PDF = "pdf"
    SVG = "svg"


def plot(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="A sweep directory, or one trial's.")],
    figure: Annotated[FigureName, typer.Option("--figure", help="Which figure.")] = FigureName.CURVES,
    trial: Annotated[str | None, typer.Option("--trial", metavar="ID", help="One trial: its id or name.")] = None,
    format: Annotated[FileFormat, typer.Option("--format", help="File format.")] = FileFormat.PNG,
) -> None:
    """Draw figures under DIR/figures and print their paths."""
    from paftbench.analysis.figures import draw, draw_all

    if figure is FigureName.ALL:
        paths = draw_all(directory, trial, format.value, lambda name, reason: message(f"not drawn: {name}: {reason}"))
    else:
        paths = draw(directory, (figure.value,), trial, format.value)
    for path in paths:
        say(path)
