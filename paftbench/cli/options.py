"""What every command shares: `--plugin`, and where messages go."""

import functools
import inspect
import sys
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Annotated, Any

import typer

from paftbench.errors import Missing, Refused
from paftbench.printable import printable

PluginFiles = Annotated[
    list[Path] | None,
    typer.Option("--plugin", metavar="FILE.py", help="A file with fault models, mitigations or workloads; repeatable."),
]


def load_plugins(paths: Sequence[Path] | None) -> list[Path]:
    """Register the plugins of the user's files, and keep what they print off stdout."""
    from paftbench.plugins import load_file

    with redirect_stdout(sys.stderr):
        for path in paths or ():
            load_file(path)
    return list(paths or ())


def taking_plugins(command: Callable[..., Any]) -> Callable[..., Any]:
    """The command with `--plugin` added, for those that only look: results are read without plugins."""
    signature = inspect.signature(command)

    @functools.wraps(command)
    def wrapped(*arguments: Any, plugin: list[Path] | None = None, **options: Any) -> Any:
        for path in plugin or ():
            if not path.is_file():
                raise Missing(f"plugin file {path} does not exist")
        return command(*arguments, **options)

    # typer reads a command's signature and its annotations, and wraps() has copied both without the new one.
    added = inspect.Parameter("plugin", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=PluginFiles)
    wrapped.__signature__ = signature.replace(parameters=[*signature.parameters.values(), added])  # type: ignore[attr-defined]
    wrapped.__annotations__ = {**command.__annotations__, "plugin": PluginFiles}
    return wrapped


def check_target(to: Path, flag: str = "--to") -> None:
    """One line where the file of a flag cannot be written, before anything is read."""
    if not to.parent.is_dir():
        raise Missing(f"{flag} (the file to write): {to.parent} is not a directory")
    if to.is_dir():
        raise Refused(f"{flag} (the file to write): {to} is a directory")


def say(text: object) -> None:
    """Results: stdout. Names and reasons in them are the user's, and never act on the terminal."""
    typer.echo(printable(str(text)))


def message(text: str) -> None:
    """Progress and warnings: stderr, because stdout carries results only."""
    print(printable(text), file=sys.stderr, flush=True)


def columns(rows: Sequence[Sequence[str]]) -> str:
    """Rows of text in aligned columns; the last one is as long as it likes."""
    if not rows:
        return ""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows)
    return "\n".join(lines)


def duration(seconds: float) -> str:
    """Seconds as people say them."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
