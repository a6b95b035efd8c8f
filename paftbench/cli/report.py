"""`paftbench report`: a sweep as one HTML file."""

from importlib.resources import files
from pathlib import Path
from typing import Annotated

import typer

from paftbench.cli.options import check_target, say


def report(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="A sweep directory, or one trial's.")],
    to: Annotated[
        Path | None, typer.Option("--to", metavar="FILE", help="The file to write (default: DIR/report.html).")
    ] = None,
) -> None:
    """Write figures, tables, failures and environment into one HTML file and print its path."""
    from paftbench.analysis.report import write

    if to is not None:
        check_target(to)
    say(write(directory, to, about=_about(directory)))


def _about(directory: Path) -> str:
    """The sentence of the shipped experiment of that name: records do not carry it."""
    import yaml

    from paftbench.store.directory import read_results

    names = {record.planned.experiment for record in read_results(directory)}
    root = Path(str(files("paftbench.experiments")))
    shipped = {path.relative_to(root).with_suffix("").as_posix(): path for path in root.rglob("*.yaml")}
    if len(names) != 1 or not names <= shipped.keys():
        return ""
    return str(yaml.safe_load(shipped[names.pop()].read_text(encoding="utf-8")).get("about", ""))
