"""One thread per process, as the Makefile asks for: with more, sums differ in their last bits between processes."""

import os

os.environ["OMP_NUM_THREADS"] = "1"
