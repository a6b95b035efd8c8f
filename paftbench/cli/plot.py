"""`paftbench plot`: the figures of a sweep."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from paftbench.cli.options import message, say

FigureName = Literal["curves", "degree", "divergence", "timeline", "periods", "overhead", "overview", "all"]
FileFormat = Literal["png", "pdf", "svg"]


def plot(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="A sweep directory, or one trial's.")],
    figure: Annotated[FigureName, typer.Option("--figure", help="Which figure.")] = "curves",
    trial: Annotated[str | None, typer.Option("--trial", metavar="ID", help="One trial: its id or name.")] = None,
    format: Annotated[FileFormat, typer.Option("--format", help="File format.")] = "png",
) -> None:
    """Draw figures under DIR/figures and print their paths."""
    from paftbench.analysis.figures import draw, draw_all

    if figure == "all":
        paths = draw_all(directory, trial, format, lambda name, reason: message(f"not drawn: {name}: {reason}"))
    else:
        paths = draw(directory, (figure,), trial, format)
    for path in paths:
        say(path)
