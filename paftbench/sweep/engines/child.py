"""The body of a trial's own process, forked from the server."""

import logging
import multiprocessing
import os
import signal
import sys
from importlib import import_module
from pathlib import Path

from paftbench.process import die_with_parent


def run_forked(target: str, directory: Path, log: Path, setting: dict[str, str]) -> None:
    """Run `module:function` on a trial directory; everything it prints goes to `log`, its result is the exit code."""
    die_with_parent()
    os.environ.update(setting)
    # A workload's own workers start as the platform starts them: through a server each import would be repeated.
    multiprocessing.set_start_method(None, force=True)
    # Ctrl-C reaches the whole terminal group; the sweep decides what becomes of its trials.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.close(descriptor)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s: %(message)s")
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)
    module, _, function = target.partition(":")
    sys.exit(getattr(import_module(module), function)(directory))
