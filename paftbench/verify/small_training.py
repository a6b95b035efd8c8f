"""A small training of W ranks in this process, for what plugins do in it. Shapes: L = hosted ranks, n = elements."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from paftbench.faults.draws import generator_of, seed_of
from paftbench.faults.fault import Fault
from paftbench.mitigations import Mitigation
from paftbench.ranks.axis import Ranks
from paftbench.records.trial import OptimizerConfig
from paftbench.training.optimizers import optimizer_of
from paftbench.training.virtual import Virtual

BATCH, INPUTS, WIDTH = 6, 5, 7


class Net(nn.Module):
    """Weights, biases, a norm layer with buffers, dropout; `idle`: a parameter that no step uses."""

    def __init__(self, *, norm: bool = True, idle: bool = False) -> None:
        super().__init__()
        self.idle = nn.Parameter(torch.ones(9)) if idle else None
        self.first = nn.Linear(INPUTS, WIDTH)
        self.norm = nn.BatchNorm1d(WIDTH) if norm else nn.Identity()
        self.drop = nn.Dropout(0.1) if norm else nn.Identity()
        self.last = nn.Linear(WIDTH, 2)

    def forward(self, x_BI: Tensor) -> Tensor:
        hidden = torch.tanh(self.norm(self.first(x_BI)))
        out: Tensor = self.last(self.drop(hidden))
        return out


class SmallTraining:
    """`Net` under SGD with momentum, or another optimizer, on `ranks`; every batch is a function of step and rank."""

    def __init__(
        self,
        mitigations: Sequence[Mitigation] = (),
        faults: Sequence[Fault] = (),
        *,
        ranks: Ranks | None = None,
        optimizer: OptimizerConfig | None = None,
        dtype: torch.dtype = torch.float32,
        norm: bool = True,
        idle: bool = False,
    ) -> None:
        ranks = ranks or Ranks.virtual(4)
        optimizer = optimizer or OptimizerConfig(name="sgd", lr=0.05, momentum=0.9)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(3)
            model = Net(norm=norm, idle=idle).to(dtype)
        self.dtype = dtype
        self.virtual = Virtual(
            model, optimizer_of(optimizer), ranks, rank_seeds=[seed_of("rank", 0, rank) for rank in ranks.local],
            faults=faults, mitigations=mitigations, split=idle,
        )  # fmt: skip

    @property
    def step(self) -> int:
        """Completed steps."""
        return self.virtual.pipeline.step

    def run(self, steps: int, after: Callable[[], None] = lambda: None) -> "SmallTraining":
        """Train up to `steps` completed steps; `after` is called after each."""
        with torch.random.fork_rng(devices=[]):
            while self.step < steps:
                self.virtual.backward(self._loss)
                self.virtual.update()
                after()
        return self

    def _loss(self, module: nn.Module, rank: int) -> Tensor:
        generator = generator_of("contract", self.step, rank)
        x_BI = torch.from_numpy(generator.standard_normal((BATCH, INPUTS))).to(self.dtype)
        y_B = torch.from_numpy(generator.integers(0, 2, BATCH))
        return nn.functional.cross_entropy(module(x_BI).float(), y_B)

    def parameters(self) -> list[Tensor]:
        """Copies of the parameters' blocks [L, n]."""
        return [block.clone() for block in self.virtual.replicas.parameters]

    def state_dict(self) -> dict[str, Any]:
        return self.virtual.state_dict()


def rows_equal(blocks: Sequence[Tensor]) -> bool:
    """Whether all ranks hold the same numbers."""
    return all(torch.equal(block, block[:1].expand_as(block)) for block in blocks)


def same_numbers(one: Sequence[Tensor], other: Sequence[Tensor]) -> bool:
    """Whether two lists of blocks hold the same bits, NaN for NaN."""
    return all(
        a.dtype == b.dtype and a.shape == b.shape and torch.equal(a.nan_to_num(nan=1.5e9), b.nan_to_num(nan=1.5e9))
        for a, b in zip(one, other, strict=True)
    )
