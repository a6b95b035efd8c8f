"""What the fork server imports once, so that a trial starts in milliseconds. Imported nowhere else."""

import os

from paftbench.process import announced, die_with_parent

# First of all: SIGKILL of the sweep must leave neither the server nor its trials behind.
die_with_parent()
os.environ.update(announced())
os.environ["OMP_NUM_THREADS"] = "1"

import torch  # noqa: E402

torch.set_num_threads(1)
# The first optimizer of a process imports a large part of torch, which takes a second.
torch.optim.SGD([torch.zeros(1)])

import paftbench.trial  # noqa: E402, F401
from paftbench.plugins import KINDS, known  # noqa: E402

for _kind in KINDS:
    known(_kind)
