"""One step, as a mitigation sees it."""

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from paftbench.ranks.axis import Ranks
from paftbench.ranks.layout import Layout
from paftbench.ranks.replicas import Replicas


@dataclass(frozen=True, kw_only=True)
class Decision:
    """Why a mitigation chose its period: what it saw of the gradient and of the replicas' spread, and where.

    `sigma` is the estimated std of the noise that each rank adds per step.
    """

    rule: str
    layer: str | None
    gradient: float
    spread: float
    sigma: float | None
    lr: float
    period_before: int
    period: int


class Step:
    """What a mitigation may read and change: live blocks with a leading rank axis, [L, n].

    `index` counts steps from 0; `state` is what the mitigation's `init` gave. A mitigation that synchronised sets
    `synced`; one that works in periods sets `period`, and one that chose it says why in `decision`.

    `skipped`: the optimizer's update was left out on all ranks, or, in `on_gradients`, is known to be. `loss_scale`:
    what contributions are multiplied by, with a GradScaler; all else is in its own units.
    """

    def __init__(
        self,
        index: int,
        replicas: Replicas,
        state: dict[str, Any],
        *,
        skipped: bool = False,
        loss_scale: float = 1.0,
    ) -> None:
        self.index = index
        self.replicas = replicas
        self.state = state
        self.skipped = skipped
        self.loss_scale = loss_scale
        self.synced = False
        self.period: int | None = None
        self.decision: Decision | None = None

    @property
    def ranks(self) -> Ranks:
        return self.replicas.ranks

    @property
    def layout(self) -> Layout:
        return self.replicas.layout

    @property
    def lr(self) -> float:
        return self.replicas.lr

    @property
    def gradients(self) -> list[Tensor]:
        """Aggregated gradients as each rank received them."""
        return [block for _, block in self.replicas.gradients]

    @property
    def parameters(self) -> list[Tensor]:
        return self.replicas.parameters

    @property
    def moments(self) -> list[Tensor]:
        """The optimizer's element-wise state."""
        return self.replicas.moments
