"""A mitigation on trial, in one setting."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from torch import Tensor

from paftbench.mitigations import Mitigation
from paftbench.ranks.axis import Ranks
from paftbench.verify.promise import Broken
from paftbench.verify.small_training import SmallTraining
from paftbench.verify.variants import built, label_of, variants

STEPS = 23  # two periods of ten, and a part of a third
WORLDS = (2, 3, 4, 8, 16)  # in the order in which they are tried


@dataclass(frozen=True)
class MitigationCase:
    """`cls` with `fields` set."""

    cls: type[Mitigation]
    fields: Mapping[str, Any]

    @property
    def label(self) -> str:
        return ", ".join(label_of(self.fields))

    @property
    def overrides_aggregate(self) -> bool:
        return self.cls.aggregate is not Mitigation.aggregate

    @cached_property
    def worlds(self) -> list[int]:
        """World sizes at which it starts; some rules need many ranks and refuse fewer with `ValueError`."""
        found, reason = [], ""
        for world_size in WORLDS:
            try:
                self.training(world_size).run(1)
            except ValueError as refused:
                reason = str(refused)
            else:
                found.append(world_size)
        if not found:
            raise Broken(f"expected it to train with one of {sorted(WORLDS)} ranks, got ValueError: {reason}")
        return found

    def make(self) -> Mitigation:
        """A fresh instance."""
        mitigation: Mitigation = built(self.cls, self.fields)
        return mitigation

    def training(self, world_size: int | None = None, **how: Any) -> SmallTraining:
        """A small training under this mitigation; `how` as `SmallTraining` takes it."""
        how = {"ranks": Ranks.virtual(world_size or self.worlds[0]), **how}
        return SmallTraining([self.make()], **how)

    def mean_of(self, grad_Ln: Tensor) -> Tensor:
        """What `aggregate` makes of the gradients of all ranks, which it may overwrite."""
        ranks = Ranks.virtual(len(grad_Ln))
        return self.make().aggregate(grad_Ln.clone(), ranks)


def mitigation_cases(cls: type[Mitigation]) -> Iterator[MitigationCase]:
    """Every setting."""
    for values in variants(cls):
        yield MitigationCase(cls, values)
