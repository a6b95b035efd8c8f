"""`paftbench data`: get a data set and check it."""

from pathlib import Path
from typing import Annotated

import typer

from paftbench.cli.options import message
from paftbench.errors import Refused


def data(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A data set; `paftbench ls data` lists them.")],
    settings: Annotated[list[str] | None, typer.Argument(metavar="[path=FILE]", help="For tokens: your file.")] = None,
    directory: Annotated[
        Path | None, typer.Option("--dir", metavar="DIR", help="Where it goes [$PAFTBENCH_DATA, else the user cache].")
    ] = None,
) -> int:
    """Prepare a data set, check its sha256, print source and licence."""
    path: Path | None = None
    for setting in settings or ():
        key, equals, value = setting.partition("=")
        if key != "path" or not equals or not value:
            raise Refused(f"expected path=FILE, got {setting!r}")
        path = Path(value)
    from paftbench.workloads.prepare import prepare

    try:
        typer.echo(prepare(name, directory, path))
    except RuntimeError as error:
        message(f"paftbench: error: {' '.join(str(error).split())}")
        return 1
    return 0
