"""A fault model for each promise that fault models can break."""

import os
import random
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from contract_defects.good import Dense, Sparse
from paftbench.faults import Changed, Draws, Slice
from paftbench.faults.contract import FLOATS
from paftbench.faults.draws import generator_of
from paftbench.ranks.axis import Ranks
from paftbench.ranks.layout import Layout

DEFECTS: dict[str, list[type]] = {}


def breaks(sentence: str) -> Any:
    """Notes which promise a class breaks, and makes the dataclass that it would be."""

    def noted(cls: Any) -> Any:
        made = dataclass(frozen=True, kw_only=True)(cls)
        made.__doc__ = made.__doc__ if (made.__doc__ or "").startswith("A ") else "A defect."
        DEFECTS.setdefault(sentence.replace(" ", "_"), []).append(made)
        return made

    return noted


@breaks("some legal degree strikes every rank")
class NeverStrikes(Sparse):
    def count(self, n: int, draws: Draws) -> int:
        return 0


@breaks("degree zero changes no bit")
class AtLeastOne(Sparse):
    def count(self, n: int, draws: Draws) -> int:
        return max(1, super().count(n, draws))


@breaks("every dtype it declares is really struck")
class SkipsBfloat16(Dense):
    def change(self, grad_N: Tensor, where: Slice, state: dict[str, Tensor], draws: Draws) -> Changed:
        return Changed(0, ()) if grad_N.dtype == torch.bfloat16 else super().change(grad_N, where, state, draws)


class Everything(frozenset[torch.dtype]):
    """Claims to hold whatever it is asked for."""

    def __contains__(self, dtype: object) -> bool:
        return True


@breaks("a dtype it does not declare is refused")
class TakesAnything(Sparse):
    dtypes = Everything(FLOATS)


@breaks("the counts it reports are what really changed")
class CountsAll(Dense):
    def change(self, grad_N: Tensor, where: Slice, state: dict[str, Tensor], draws: Draws) -> Changed:
        before_N, half = grad_N.clone(), grad_N[: grad_N.numel() // 2]
        half += 1
        return replace(Changed.between(before_N, grad_N, where), elements=grad_N.numel())


@breaks("the counts it reports are what really changed")
class WrongNorm(Dense):
    def change(self, grad_N: Tensor, where: Slice, state: dict[str, Tensor], draws: Draws) -> Changed:
        changed = super().change(grad_N, where, state, draws)
        return replace(changed, squares=(*changed.squares, 1.0))


@breaks("the counts it reports are what really changed")
class NormThatIsNoNumber(Dense):
    def change(self, grad_N: Tensor, where: Slice, state: dict[str, Tensor], draws: Draws) -> Changed:
        return replace(super().change(grad_N, where, state, draws), squares=(float("nan"),))


@breaks("the counts it reports are what really changed")
class StrikesAPartOfWhatItDrew(Dense):
    def change(self, grad_N: Tensor, where: Slice, state: dict[str, Tensor], draws: Draws) -> Changed:
        changed = super().change(grad_N, where, state, draws)
        return replace(changed, elements=changed.elements // 2, struck=changed.elements // 2)


@breaks("as many strikes are drawn as expected says")
class StrikesTwice(Sparse):
    def count(self, n: int, draws: Draws) -> int:
        return min(n, 2 * super().count(n, draws))


@breaks("both ends of its range and round degrees work")
class RefusesOne(Sparse):
    def count(self, n: int, draws: Draws) -> int:
        if self.degree == 1:
            raise ValueError("probability must be below 1")
        return super().count(n, draws)


@breaks("the same key draws the same strikes")
class DrawsFromTheSystem(Sparse):
    def change(self, value_K: Tensor, draws: Draws) -> Tensor:
        return value_K + torch.from_numpy(np.random.default_rng().random(len(value_K))).to(value_K)


@breaks("the same key draws the same strikes in every process")
class HashesItsName(Sparse):
    def change(self, value_K: Tensor, draws: Draws) -> Tensor:
        return value_K * (2 + hash(self.name) % 1_000_003)


@breaks("the same key draws the same strikes in every process")
class StrikesByProcess(Sparse):
    def change(self, value_K: Tensor, draws: Draws) -> Tensor:
        return value_K * (2 + os.getpid())


@breaks("another seed name attempt step or rank draws other strikes")
class AlwaysTheSameNoise(Dense):
    def change(self, grad_N: Tensor, where: Slice, state: dict[str, Tensor], draws: Draws) -> Changed:
        before_N = grad_N.clone()
        grad_N += torch.rand(grad_N.numel(), generator=torch.Generator().manual_seed(0)).to(grad_N.dtype)
        return Changed.between(before_N, grad_N, where)


@breaks("another seed name attempt step or rank draws other strikes")
class SaysItDrawsNothing(Dense):
    deterministic = True


@breaks("strikes do not depend on how the gradient is cut into buckets")
class DrawsPerSlice(Dense):
    def change(self, grad_N: Tensor, where: Slice, state: dict[str, Tensor], draws: Draws) -> Changed:
        before_N = grad_N.clone()
        generator = draws.torch_generator(f"{where.start}", grad_N.device)
        grad_N += torch.rand(grad_N.numel(), generator=generator).to(grad_N.dtype)
        return Changed.between(before_N, grad_N, where)


@breaks("strikes do not depend on where the gradient lies in memory")
class GoesByAlignment(Dense):
    def change(self, grad_N: Tensor, where: Slice, state: dict[str, Tensor], draws: Draws) -> Changed:
        if grad_N.data_ptr() % 64:
            grad_N[-1] = 7.0
        return super().change(grad_N, where, state, draws)


@breaks("strikes do not depend on which process hosts the rank")
class DrawsByRow(Sparse):
    def change(self, value_K: Tensor, draws: Draws) -> Tensor:
        return value_K * (2 + draws.row)


@breaks("strikes do not depend on other faults")
class SharesItsCalls(Sparse):
    calls: ClassVar[dict[tuple[int, int], int]] = {}

    def change(self, value_K: Tensor, draws: Draws) -> Tensor:
        at = (draws.step, draws.rank)
        self.calls[at] = self.calls.get(at, 0) + 1
        return value_K * (1 + self.calls[at])


@breaks("it neither uses nor moves a global random generator")
class UsesTorch(Sparse):
    def change(self, value_K: Tensor, draws: Draws) -> Tensor:
        return value_K + torch.rand(len(value_K)).to(value_K)


@breaks("it neither uses nor moves a global random generator")
class UsesNumpy(Sparse):
    def count(self, n: int, draws: Draws) -> int:
        return int(np.random.binomial(n, self.degree))


@breaks("it neither uses nor moves a global random generator")
class UsesRandom(Sparse):
    def change(self, value_K: Tensor, draws: Draws) -> Tensor:
        return value_K * (2 + random.random())


@breaks("it neither uses nor moves a global random generator")
class UsesTorchAndPutsItBack(Sparse):
    def change(self, value_K: Tensor, draws: Draws) -> Tensor:
        with torch.random.fork_rng(devices=[]):
            return value_K + torch.rand(len(value_K)).to(value_K)


@breaks("a permanent fault strikes a repetition the same and a transient one afresh")
class ForgetsTheAttempt(Sparse):
    def count(self, n: int, draws: Draws) -> int:
        draws._generator = generator_of(*draws.key[:2], draws.step, draws.rank)
        return super().count(n, draws)

    def change(self, value_K: Tensor, draws: Draws) -> Tensor:
        return value_K * 2


@breaks("change keeps shape dtype and device")
class ReturnsFloat64(Sparse):
    def change(self, value_K: Tensor, draws: Draws) -> Tensor:
        return super().change(value_K, draws).double()


@breaks("change keeps shape dtype and device")
class ReturnsOneLess(Sparse):
    def change(self, value_K: Tensor, draws: Draws) -> Tensor:
        return super().change(value_K, draws)[1:]


@breaks("change returns what the contract says")
class CountsNothing(Dense):
    def change(self, grad_N: Tensor, where: Slice, state: dict[str, Tensor], draws: Draws) -> Changed:
        super().change(grad_N, where, state, draws)
        return None  # type: ignore[return-value]


@breaks("change returns what the contract says")
class ReturnsANumber(Dense):
    def change(self, grad_N: Tensor, where: Slice, state: dict[str, Tensor], draws: Draws) -> Any:
        return super().change(grad_N, where, state, draws).elements


@breaks("a sparse change leaves its input as it is")
class ChangesInPlace(Sparse):
    def change(self, value_K: Tensor, draws: Draws) -> Tensor:
        return value_K.mul_(2)


@breaks("gradients that are not finite do not stop it")
class NeedsNumbers(Sparse):
    def change(self, value_K: Tensor, draws: Draws) -> Tensor:
        return value_K * int(value_K.abs().max())


@breaks("only the selected parameters and ranks are struck")
class StrikesTheWholeBucket(Dense):
    def change(self, grad_N: Tensor, where: Slice, state: dict[str, Tensor], draws: Draws) -> Changed:
        before_N = grad_N.clone()
        whole = grad_N if grad_N._base is None else grad_N._base
        whole += 1
        return Changed.between(before_N, grad_N, where)


@breaks("a gradient of one element is enough")
class NeedsTwoElements(Sparse):
    def count(self, n: int, draws: Draws) -> int:
        return int(draws.generator.integers(0, n - 1)) and super().count(n, draws)


@breaks("its state is tensors with a leading row for each hosted rank")
class OnePastForAll(Dense):
    def init(self, layout: Layout, ranks: Ranks) -> dict[str, Tensor]:
        return {"past": torch.zeros(layout.size)}


@breaks("its state is tensors with a leading row for each hosted rank")
class NumbersAsState(Dense):
    def init(self, layout: Layout, ranks: Ranks) -> dict[str, Tensor]:
        return {"calls": 0}  # type: ignore[dict-item]


@breaks("it resumes from a checkpoint bit for bit")
class RemembersInTheClass(Dense):
    past: ClassVar[dict[tuple[int, int], Tensor]] = {}

    def change(self, grad_N: Tensor, where: Slice, state: dict[str, Tensor], draws: Draws) -> Changed:
        here = grad_N.clone()
        old = self.past.get((draws.rank, where.start)) if draws.step else None
        grad_N.copy_(here + 1 if old is None or old.shape != here.shape else here + old.to(here))
        self.past[draws.rank, where.start] = here
        return Changed.between(here, grad_N, where)


@breaks("the plugin itself holds no state")
class CountsItsCalls(Sparse):
    def change(self, value_K: Tensor, draws: Draws) -> Tensor:
        object.__setattr__(self, "calls", getattr(self, "calls", 0) + 1)
        return value_K * 2


@breaks("it strikes at every site it declares")
class NeedsALargeModel(Sparse):
    def count(self, n: int, draws: Draws) -> int:
        return super().count(n, draws) if n > 500 else 0
