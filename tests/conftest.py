"""Every test finds the same surroundings, whoever started it."""

import os
import signal
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from support.killing import Driver

# One thread per process, as the Makefile asks for: with more, sums differ in their last bits between processes.
os.environ["OMP_NUM_THREADS"] = "1"
# Tables are as wide as the terminal.
os.environ.pop("COLUMNS", None)
# A job in the background is started with Ctrl-C ignored, and would hand that on to every process it starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# A project of its own, with a test that fails on purpose: tests/testing/test_pytest_plugin.py runs it.
collect_ignore = ["foreign"]


def pytest_configure(config: pytest.Config) -> None:
    """A worker of xdist will need the server that processes are forked from: it imports while tests are collected."""
    if hasattr(config, "workerinput"):
        from support import warm

        warm.start()


@pytest.fixture(scope="session")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator["Driver"]:
    """Starts commands that may be killed."""
    from support.killing import Driver

    started = Driver(tmp_path_factory.mktemp("commands"))
    yield started
    started.close()
