"""One thread per process, as the Makefile asks for: with more, sums differ in their last bits between processes."""

import os

os.environ["OMP_NUM_THREADS"] = "1"

# A project of its own, with a test that fails on purpose: tests/test_pytest_plugin.py runs it.
collect_ignore = ["foreign"]
