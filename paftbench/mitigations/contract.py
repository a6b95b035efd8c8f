"""What a mitigation may do. Shapes: L = ranks hosted by this process, n = elements of a block."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from torch import Tensor

from paftbench.mitigations.step import Step
from paftbench.ranks.axis import Ranks
from paftbench.ranks.layout import Layout


@dataclass(frozen=True, kw_only=True)
class Mitigation:
    """A defence: subclasses' fields are what a trial may set; every method is optional.

    `aggregates` says that `aggregate` replaces the mean: at most one mitigation of a trial may. With scope `element`
    it is called for each bucket, with `whole` once for the whole gradient. `restores` says that it can make parameters
    finite again that are not so on any rank, so that a trial must not end early because of them.
    """

    plugin_kind: ClassVar[str] = "mitigations"
    name: ClassVar[str]
    aggregates: ClassVar[bool] = False
    scope: ClassVar[Literal["element", "whole"]] = "element"
    restores: ClassVar[bool] = False

    @property
    def steps_per_sync(self) -> float | None:
        """Steps from one synchronisation to the next, as far as they are known beforehand; None: it has none."""
        return None

    @property
    def copies_pending(self) -> int:
        """How many copies of the parameters may be on their way between two steps: a checkpoint holds them, too."""
        return 0

    def init(self, layout: Layout, ranks: Ranks) -> dict[str, Any]:
        """State, found again as `step.state`: tensors, numbers and lists of them; checkpointed with the trial."""
        return {}

    def memory_bytes(self, layout: Layout) -> int:
        """Extra memory that the mitigation keeps on each rank."""
        return 0

    def on_contribution(self, step: Step, row: int, pieces: Sequence[tuple[int, Tensor]]) -> None:
        """Look at what a hosted rank (`row`) is about to contribute: (flat start, [n]) of whole parameters.

        Called once or more per rank and step, in no promised order; no collective may be issued here.
        """

    def aggregate(self, grad_Ln: Tensor, ranks: Ranks) -> Tensor:
        """W gradients to one: [1, n] for all hosted ranks, or a row for each, [L, n]. `grad_Ln` may be overwritten."""
        return ranks.mean(grad_Ln)

    def on_gradients(self, step: Step) -> None:
        """After the aggregated gradients have arrived, before the optimizer."""

    def on_step(self, step: Step) -> None:
        """After the optimizer; on every rank, skipped steps included."""

    def flush(self, step: Step) -> None:
        """Apply what is still pending, before detach and at the end of a trial."""

    def pending(self, state: dict[str, Any]) -> dict[str, Any]:
        """`state` as a checkpoint can hold it: nothing in flight, the trajectory untouched."""
        return state

    def resume(self, state: dict[str, Any]) -> dict[str, Any]:
        """The inverse of `pending`, from a checkpoint."""
        return state
