"""What defends: a trial's mitigations are applied in the order of its list."""

from paftbench.mitigations.contract import Mitigation
from paftbench.mitigations.step import Step

__all__ = ["Mitigation", "Step"]
