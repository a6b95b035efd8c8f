"""Element-wise gradient clipping."""

from dataclasses import dataclass
from math import isfinite

from paftbench.errors import Refused
from paftbench.mitigations.contract import Mitigation
from paftbench.mitigations.step import Step


@dataclass(frozen=True, kw_only=True)
class ClipValue(Mitigation):
    """Clamp every element of the received gradient to plus or minus `limit`; NaN becomes 0.

    PAFT's authors clamp to 1 or 0.1 before averaging in their research code, since averaging spreads a large error.
    `torch.nn.utils.clip_grad_value_` does the same but lets NaN through.
    """

    name = "clip_value"
    limit: float = 0.1

    def __post_init__(self) -> None:
        if not (isfinite(self.limit) and self.limit > 0):
            raise Refused(f"limit (largest absolute gradient element) must be > 0, got {self.limit!r}")

    def on_gradients(self, step: Step) -> None:
        for grad_Ln in step.gradients:
            grad_Ln.nan_to_num_(nan=0.0, posinf=None, neginf=None).clamp_(-self.limit, self.limit)
