"""Imported once where processes are forked from: what commands import late, and torch when it is first used."""

import gc
from importlib import import_module

import torch

OURS = (
    "trial", "cli.main", "cli.progress", "cli.sweeping", "analysis.table", "experiment.plan", "sweep.sweep",
    "verify.suite",
)  # fmt: skip

for _name in OURS:
    import_module(f"paftbench.{_name}")
torch.optim.SGD([torch.zeros(1)])
with torch.device("meta"):
    torch.nn.Linear(1, 1)
gc.collect()
gc.freeze()  # forks then share what is there: looking through it for garbage would copy it
