"""Every test finds the same surroundings, whoever started it."""

import os
import signal

# One thread per process, as the Makefile asks for: with more, sums differ in their last bits between processes.
os.environ["OMP_NUM_THREADS"] = "1"
# Tables are as wide as the terminal.
os.environ.pop("COLUMNS", None)
# A job in the background is started with Ctrl-C ignored, and would hand that on to every process it starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# A project of its own, with a test that fails on purpose: tests/testing/test_pytest_plugin.py runs it.
collect_ignore = ["foreign"]
