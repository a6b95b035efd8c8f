"""`paftbench table`: a row per cell of a sweep."""

from pathlib import Path
from typing import Annotated

import typer

from paftbench.cli.options import say


def table(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="A sweep directory, or one trial's.")],
    by: Annotated[str | None, typer.Option("--by", metavar="AXIS", help="One row per value of this axis.")] = None,
    injections: Annotated[
        bool, typer.Option("--injections", help="Strikes by site, bit class, parameter and magnitude.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="The rows as JSON, with every point.")] = False,
) -> None:
    """Outcomes, metric, gap closed, divergence and cost, a row per cell."""
    if injections:
        from paftbench.analysis.injections import injections_rows as json_rows
        from paftbench.analysis.injections import render_injections as render
    else:
        from paftbench.analysis.table import json_rows, render
    if as_json:
        from paftbench.analysis.text import to_json

        say(to_json(json_rows(directory, by)))
    else:
        say(render(directory, by))
