"""Where a user's loop is: how many backward passes it has made, how many updates, and what is open."""

from dataclasses import dataclass
from typing import Any

from paftbench.errors import Refused

KEPT = ("rounds", "updates", "undecided", "mitigated")


@dataclass(kw_only=True)
class Loop:
    """`rounds` are synchronised backward passes, `accumulation` of which make a step; `updates` are the optimizer's.

    `undecided`: a step's gradients are there, and the optimizer has not decided; `mitigated`: mitigations have seen
    them. `piled`: closed steps whose gradients the next one added to, so that they were none. `overtaken`: a step was
    closed without an update, since another forward pass had begun. `continued`: from a state that had made steps.
    """

    accumulation: int
    rounds: int = 0
    updates: int = 0
    undecided: bool = False
    mitigated: bool = False
    piled: int = 0
    overtaken: bool = False
    continued: bool = False

    def __post_init__(self) -> None:
        if self.accumulation < 1:
            raise Refused(f"accumulation (backward passes per step) must be >= 1, got {self.accumulation}")

    @property
    def into(self) -> int:
        """Rounds of the step under way that are complete."""
        return self.rounds % self.accumulation

    @property
    def in_last(self) -> bool:
        """Whether the next round, or the one under way, is its step's last."""
        return self.into == self.accumulation - 1

    def require_complete(self) -> None:
        """`RuntimeError` where the optimizer is about to take gradients that no hook, or not every round, has made."""
        if self.rounds == 0:
            raise RuntimeError(
                "the hook was never called: no gradient went through the attached DDP model; call the DDP model, "
                "not its .module, and run backward() outside no_sync() before the optimizer's step"
            )
        if self.into:
            raise RuntimeError(
                f"accumulation (backward passes per step) is {self.accumulation}, but the optimizer stepped after "
                f"{self.into}; passes inside no_sync() do not count"
            )
        if self.piled:
            raise RuntimeError(
                f"accumulation (backward passes per step) is {self.accumulation}, but the optimizer got the gradients "
                f"of {(self.piled + 1) * self.accumulation}: no zero_grad() came between them; passes inside no_sync() "
                "do not count"
            )

    def require_open(self) -> None:
        """`RuntimeError` where the optimizer is about to take the gradients of a step that is closed."""
        if self.overtaken:
            raise RuntimeError(
                "a forward pass with gradients came between backward() and the optimizer's step, which therefore "
                "counted as skipped; evaluate under torch.no_grad(), or after the step"
            )

    def require_used(self) -> None:
        """`RuntimeError` at the end of a loop that went past the hook or the optimizer."""
        if self.continued and self.rounds == self.updates == 0:
            return  # nothing was left to do
        if self.rounds == 0:
            self.require_complete()
        if self.updates == 0:
            raise RuntimeError(
                f"the attached optimizer was never stepped: {self.rounds} backward passes, but no call of its step(), "
                "nor of scaler.step(); attach the optimizer that the loop uses"
            )

    def state_dict(self) -> dict[str, Any]:
        """`RuntimeError` within a step."""
        if self.into:
            raise RuntimeError(
                f"state_dict() within a step: after {self.into} of its {self.accumulation} backward passes"
            )
        return {name: getattr(self, name) for name in KEPT}

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """Continue between two steps; what the loop does from here on is counted, and checked, anew."""
        self.rounds = self.updates = 0
        self.undecided, self.mitigated = saved["undecided"], saved["mitigated"]
        self.continued = saved["rounds"] > 0
