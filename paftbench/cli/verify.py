"""`paftbench verify`: does a plugin keep what every plugin promises.

Plugins are tried in a process of their own, so that one which ends it cannot pass for one that keeps its promises.
"""

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from paftbench.cli.options import PluginFiles, message
from paftbench.errors import Refused
from paftbench.process import ending_of

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

STDERR = 2
POLL_S = 0.2
GRACE_S = 5.0  # for what a plugin does at exit


def verify(
    plugins: Annotated[
        list[str],
        typer.Argument(metavar="FILE.py", help="Files with plugins, or names of plugins."),
    ],
    fast: Annotated[bool, typer.Option("--fast", help="Only what takes seconds.")] = False,
    plugin: PluginFiles = None,
) -> int:
    """Try the contract suite on every plugin of a file; exit 1 where a promise is broken."""
    task = {"targets": plugins, "plugins": [str(path) for path in plugin or ()], "fast": fast}
    trying = "starting a process for the plugins"
    with _child(task) as (child, pipe):
        for word, text in _sent(child, pipe):
            if word == "verdict":
                return 0 if text == "kept" else 1
            if word == "refused":
                raise Refused(text)
            if word == "trying":
                trying = text
            else:
                (message if word == "message" else typer.echo)(text)
        ended = ending_of(child.wait())
    typer.echo(f"  BROKEN  {trying}: expected a verdict, got {ended}")
    return 1


@contextmanager
def _child(task: dict[str, Any]) -> Iterator[tuple["subprocess.Popen[bytes]", "Connection[Any, Any]"]]:
    """The process that tries plugins, and what it sends; it is gone afterwards.

    It has a session of its own: Ctrl-C interrupts this process, which then ends that one.
    """
    from multiprocessing import Pipe

    from paftbench.ranks.launch import command, environment

    here, there = Pipe(duplex=False)
    with here, there:
        text = json.dumps({**task, "pipe": there.fileno()})
        child = subprocess.Popen(
            command("paftbench.verify.child", text), env=environment(), stdout=STDERR, pass_fds=[there.fileno()],
            start_new_session=True,
        )  # fmt: skip
        there.close()  # the child's end alone is left, so that its end is the pipe's
        try:
            yield child, here
            child.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            pass
        finally:
            child.kill()
            child.wait()


def _sent(child: "subprocess.Popen[bytes]", pipe: "Connection[Any, Any]") -> Iterator[tuple[str, str]]:
    """What the process sends until it ends; what a process of its own still holds open is not waited for."""
    while True:
        ended = child.poll() is not None
        if pipe.poll(POLL_S):
            try:
                yield pipe.recv()
            except EOFError:
                return
        elif ended:
            return
