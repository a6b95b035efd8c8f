"""`paftbench plot`: the figures of a sweep."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class FigureName(StrEnum):
    """What can be drawn."""

    CURVES = "curves"
    DIVERGENCE = "divergence"
    TIMELINE = "timeline"
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
    from paftbench.analysis.figures import FIGURES, draw

    names = FIGURES if figure is FigureName.ALL else (figure.value,)
    for path in draw(directory, names, trial, format.value):
        typer.echo(path)
