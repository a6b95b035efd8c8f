"""`paftbench`: errors of use are one line on stderr and exit 2; nothing ever prompts."""

import gc
import os
import sys
import traceback
from importlib.metadata import version
from io import TextIOWrapper
from typing import Annotated

import typer

from paftbench.cli.check import check
from paftbench.cli.data import data
from paftbench.cli.doctor import doctor
from paftbench.cli.export import export
from paftbench.cli.ls import ls
from paftbench.cli.options import taking_plugins
from paftbench.cli.paper import paper
from paftbench.cli.plot import plot
from paftbench.cli.report import report
from paftbench.cli.run import run
from paftbench.cli.status import status
from paftbench.cli.table import table
from paftbench.cli.verify import verify
from paftbench.errors import Refused
from paftbench.printable import printable

INTERRUPTED = 130
REPORT = (
    "paftbench: an error of paftbench's own, not of yours: "
    "please report the lines above, with what `paftbench doctor --json` says"
)
RARELY = 100_000  # new objects between two looks for garbage; figures leave some, and memory is bounded

app = typer.Typer(
    name="paftbench",
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def told(asked: bool) -> None:
    """Print the version and end, where it is asked for."""
    if asked:
        typer.echo(f"paftbench {version('paftbench')}")
        raise typer.Exit


@app.callback()
def common(
    asked: Annotated[
        bool, typer.Option("--version", callback=told, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Distributed training under silent gradient-aggregation errors, measured."""


app.command()(run)
app.command()(paper)
app.command()(check)
app.command()(ls)
app.command()(verify)
for _looking in (status, table, plot, report, export, data, doctor):
    app.command()(taking_plugins(_looking))


def main(arguments: list[str] | None = None) -> None:
    """The entry point of the console script; ends the process with INTERFACE's exit codes."""
    for stream in (sys.stdout, sys.stderr):
        # A terminal or file of another encoding gets what it has no letter for written out, not an error.
        if isinstance(stream, TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="backslashreplace")
    # Imports and plans are objects that stay: looking for garbage among them is a seventh of a short command's time.
    before = gc.get_threshold()
    gc.set_threshold(RARELY, *before[1:])
    try:
        sys.exit(exit_code(sys.argv[1:] if arguments is None else arguments))
    finally:
        gc.set_threshold(*before)


def exit_code(arguments: list[str]) -> int:
    """Run a command line; 2 for what the user got wrong, 1 for an error of ours, 130 for Ctrl-C, else its own."""
    try:
        code = app(arguments, prog_name="paftbench", standalone_mode=False)
        sys.stdout.flush()
        # typer turns Ctrl-C into this code itself, or, in older releases, into Abort.
        return interrupted() if code == INTERRUPTED else code if isinstance(code, int) else 0
    except (KeyboardInterrupt, typer.Abort):
        return interrupted()
    except BrokenPipeError:
        # The reader of stdout has gone; keep the interpreter from complaining at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 0
    except OSError as error:
        return refused(": ".join(str(part) for part in (error.strerror, error.filename) if part) or str(error))
    except Refused as error:
        return refused(str(error))
    except Exception as error:
        # typer's own word on a mistake: it exports no class of all of them, and their base differs with its release.
        if (said := getattr(error, "format_message", None)) is not None:
            return refused(said().replace("Value error, ", "") or "expected a command; see paftbench --help")
        traceback.print_exc()
        print(REPORT, file=sys.stderr)
        return 1


def interrupted() -> int:
    """Say that nothing is lost."""
    print("paftbench: interrupted; what has finished is kept", file=sys.stderr)
    return INTERRUPTED


def refused(text: str) -> int:
    """Say on one line why nothing was done."""
    print(f"paftbench: error: {printable(' '.join(text.split()))}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    main()
