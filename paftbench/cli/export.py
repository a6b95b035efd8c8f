"""`paftbench export`: results as one file for other tools."""

from pathlib import Path
from typing import Annotated

import typer

from paftbench.cli.options import check_target, say


def export(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="A sweep directory, or one trial's.")],
    to: Annotated[Path, typer.Option("--to", metavar="FILE", help="The file: .csv, .json or .parquet.")],
    steps: Annotated[bool, typer.Option("--steps", help="A row per step instead of one per trial.")] = False,
) -> None:
    """Write a row per trial, or per step, to FILE and print its path."""
    from paftbench.analysis.export import export as write

    check_target(to)
    say(write(directory, to, steps=steps))
