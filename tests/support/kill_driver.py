"""Starts `paftbench` from a process that has imported everything already: see killing.py.

Reads orders, a line of JSON each: {"run": arguments, "mark": text, "log": path, "trials": kind} answers the process id
of a new session that runs the command; {"wait": pid} its exit code, or minus the signal that ended it. The kinds of
trials: "real" ones, "fake" ones under the real engine, and "forked" ones, which are real and forked from the command
itself, since that has imported all that a server of its own would.
"""

import atexit
import json
import multiprocessing
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import support.late_imports  # noqa: F401
from paftbench.cli.main import exit_code
from paftbench.cli.sweeping import ENGINES, LOCAL
from paftbench.plugins import KINDS, known
from paftbench.process import announcing
from paftbench.sweep.engines import local
from paftbench.sweep.engines.local import LocalEngine


def start(order: dict[str, Any]) -> int:
    """A child in a session of its own that runs a command line to its end; 0 in the child's place never returns."""
    pid = os.fork()
    if pid:
        return pid
    os.setsid()
    # A shell that runs the tests in the background lets them ignore Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ["PAFTBENCH_MARK"] = order["mark"]
    log = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for stream in (0, 1, 2):
        os.dup2(os.open(os.devnull, os.O_RDONLY) if stream == 0 else log, stream)
    if order["trials"] == "fake":
        fake = partial(LocalEngine, target="support.fake_trial:run", preload="support.light_preload")
        ENGINES[LOCAL] = fake
    elif order["trials"] == "forked":
        local._serving = forking  # type: ignore[assignment]
    code = exit_code(order["run"])
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # taking torch down would cost a second


@contextmanager
def forking(preload: Sequence[str]) -> Iterator[Any]:
    with announcing():
        yield multiprocessing.get_context("fork")


def ended(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def main() -> None:
    for kind in KINDS:
        known(kind)
    print("ready", flush=True)
    for line in sys.stdin:
        order = json.loads(line)
        print(ended(order["wait"]) if "wait" in order else start(order), flush=True)
