"""Starts `paftbench` from a process that has imported everything already: see killing.py.

Reads orders, a line of JSON each: {"run": arguments, "mark": text, "log": path, "fake": bool} answers the process id of
a new session that runs the command; {"wait": pid} its exit code, or minus the signal that ended it.
"""

import json
import os
import signal
import sys
from functools import partial
from typing import Any

import paftbench.analysis.table
import paftbench.cli.progress
import paftbench.experiment.plan
import paftbench.sweep.sweep  # noqa: F401
from paftbench.cli.main import exit_code
from paftbench.cli.sweeping import ENGINES, LOCAL
from paftbench.plugins import KINDS, known
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
    if order["fake"]:
        fake = partial(LocalEngine, target="support.fake_trial:run", preload="support.light_preload")
        ENGINES[LOCAL] = fake
    sys.exit(exit_code(order["run"]))


def ended(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def main() -> None:
    for kind in KINDS:
        known(kind)
    print("ready", flush=True)
    for line in sys.stdin:
        order = json.loads(line)
        print(ended(order["wait"]) if "wait" in order else start(order), flush=True)
