"""What goes wrong: fault models, when and whom they strike, and the log of every strike.

A fault model of your own needs the names here: a base class; `Draws`, from which its randomness comes; and for a dense
one the `Slice` that it is handed and `Changed`, which it returns.
"""

from paftbench.faults.changed import Changed
from paftbench.faults.contract import DenseFault, FaultModel, SparseFault
from paftbench.faults.draws import Draws
from paftbench.faults.slices import Slice

__all__ = ["Changed", "DenseFault", "Draws", "FaultModel", "Slice", "SparseFault"]
