"""What a fork server needs at least: its tie to the sweep. Stands in for `engines/preload.py`, which is slow."""

import os

from paftbench.process import announced, die_with_parent

die_with_parent()
os.environ.update(announced())
