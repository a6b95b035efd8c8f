"""What goes wrong: fault models, when and whom they strike, and the log of every strike.

A fault model of your own needs the names here: a base class, and `Draws`, from which its randomness comes.
"""

from paftbench.faults.draws import Draws
from paftbench.faults.model import DenseFault, FaultModel, SparseFault

__all__ = ["DenseFault", "Draws", "FaultModel", "SparseFault"]
