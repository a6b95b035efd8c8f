"""The replicas that one process hosts, as blocks with a leading rank axis.

A placement keeps parameters in blocks: the virtual one in a few large [L, n] tensors, DDP in one [1, n] per
parameter. Faults, mitigations and metrics see blocks only. Shapes: L = ranks hosted here, n = elements of a block.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from paftbench.errors import Refused
from paftbench.ranks.axis import Ranks
from paftbench.ranks.layout import Layout
from paftbench.ranks.sites import Site

# Numbers that depend on the step alone and are the same on all ranks.
COUNTERS = frozenset({"step", "eta", "mu", "mu_product"})


@dataclass(frozen=True, kw_only=True)
class Memory:
    """One flat space of the ranks' memory: the parameters, or one `kind` of the optimizer's element-wise state.

    `blocks` are live (flat start, [L, n]), in flat order; parameters that have no such state are left out.
    """

    site: Site
    kind: str | None
    blocks: list[tuple[int, Tensor]]


class Replicas:
    """Parameters, gradients, optimizer moments and buffers of the hosted ranks.

    `owners` are the optimizer's parameters with the flat index where each starts; each holds L rows.
    """

    def __init__(
        self,
        layout: Layout,
        ranks: Ranks,
        modules: Sequence[nn.Module],
        optimizer: torch.optim.Optimizer,
        owners: Sequence[tuple[int, nn.Parameter]],
    ) -> None:
        self.layout = layout
        self.ranks = ranks
        self.modules = tuple(modules)
        self.optimizer = optimizer
        self.owners = tuple(owners)

    def rows(self, tensor: Tensor) -> Tensor:
        """A block's live [L, n] view."""
        return tensor.detach().view(len(self.ranks.local), -1)

    @property
    def parameters(self) -> list[Tensor]:
        """Live blocks of the parameters, in flat order."""
        return [self.rows(owner) for _, owner in self.owners]

    @property
    def gradients(self) -> list[tuple[int, Tensor]]:
        """Live (flat start, block) of the gradients; a parameter that no rank used is left out."""
        return [(start, self.rows(owner.grad)) for start, owner in self.owners if owner.grad is not None]

    @property
    def moments(self) -> list[Tensor]:
        """Live blocks of the optimizer's element-wise state, one kind after the other, each in flat order.

        Momentum, or Adam's moments; step counters are not of them. `ValueError` where there is state of another shape,
        such as Adafactor's row and column statistics, which would be left as they are.
        """
        for _, owner in self.owners:
            for kind, value in self.optimizer.state.get(owner, {}).items():
                if isinstance(value, Tensor) and value.ndim and value.shape != owner.shape:
                    raise Refused(
                        f"optimizer {type(self.optimizer).__name__} keeps {kind!r}, which is not one value per element,"
                        " so its state can be neither averaged nor reset; use state: params"
                    )
        return [block for blocks in self._kinds().values() for _, block in blocks]

    def memory(self, sites: Collection[Site]) -> Iterator[Memory]:
        """What faults at `sites` may strike once the optimizer has decided: each space that exists by now."""
        if Site.PARAMETER in sites:
            blocks = [(start, self.rows(owner)) for start, owner in self.owners]
            yield Memory(site=Site.PARAMETER, kind=None, blocks=blocks)
        if Site.OPTIMIZER_STATE in sites:
            kinds = self._kinds()
            if not kinds:
                self.require_state()
            for kind, blocks in sorted(kinds.items()):
                yield Memory(site=Site.OPTIMIZER_STATE, kind=kind, blocks=blocks)

    def require_state(self) -> None:
        """`ValueError` where the optimizer keeps no element-wise state, as far as its settings or its state show."""
        if self._kinds():
            return
        plain = isinstance(self.optimizer, torch.optim.SGD) and not any(
            g["momentum"] for g in self.optimizer.param_groups
        )
        if plain or any(self.optimizer.state.values()):
            name = type(self.optimizer).__name__ + (" with momentum 0" if plain else "")
            raise Refused(f"site 'optimizer_state': {name} keeps no element-wise state that could be struck")

    def _kinds(self) -> dict[str, list[tuple[int, Tensor]]]:
        """Live (flat start, block) of each kind of element-wise state that exists; step counters are not of them."""
        kinds: dict[str, list[tuple[int, Tensor]]] = {}
        for start, owner in self.owners:
            for kind, value in self.optimizer.state.get(owner, {}).items():
                if kind not in COUNTERS and isinstance(value, Tensor) and value.shape == owner.shape:
                    kinds.setdefault(kind, []).append((start, self.rows(value)))
        return kinds

    @property
    def lr(self) -> float:
        return float(self.optimizer.param_groups[0]["lr"])

    def buffers(self) -> list[Tensor]:
        """Copies of the floating-point buffers, one [L, n] block per buffer: integer counters are nobody's mean."""
        columns = zip(*(list(float_buffers(module)) for module in self.modules), strict=True)
        return [torch.stack([buffer.detach().reshape(-1) for buffer in column]) for column in columns]

    def load_buffers(self, blocks: Sequence[Tensor]) -> None:
        """Write blocks of [1, n] or [L, n] back into every replica's buffers."""
        for row, module in enumerate(self.modules):
            for buffer, block in zip(float_buffers(module), blocks, strict=True):
                buffer.copy_(block[row if block.shape[0] > 1 else 0].view_as(buffer))


def float_buffers(module: nn.Module) -> list[Tensor]:
    """The buffers that have a mean."""
    return [buffer for buffer in module.buffers() if buffer.is_floating_point() and buffer.numel()]
