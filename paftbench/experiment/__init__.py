"""A YAML file, and the trials it stands for."""

from paftbench.experiment.file import Experiment, load, shipped_experiments
from paftbench.experiment.plan import plan

__all__ = ["Experiment", "load", "plan", "shipped_experiments"]
