"""A mitigation for each promise that mitigations can break."""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from contract_defects.good import Median
from paftbench.mitigations import Mitigation, Step
from paftbench.ranks.axis import Ranks
from paftbench.ranks.layout import Layout

DEFECTS: dict[str, list[type]] = {}


def breaks(sentence: str) -> Any:
    """Notes which promise a class breaks, and makes the dataclass that it would be."""

    def noted(cls: Any) -> Any:
        cls.__doc__, cls.name = "A defect.", "defect"
        DEFECTS.setdefault(sentence.replace(" ", "_"), []).append(dataclass(frozen=True, kw_only=True)(cls))
        return cls

    return noted


@breaks("training without faults stays finite")
class Spoils(Mitigation):
    def on_step(self, step: Step) -> None:
        if step.index == 7:
            step.parameters[0][:, 0] = float("inf")


@breaks("equal replicas stay equal without faults")
class PartsTheRanks(Mitigation):
    def on_step(self, step: Step) -> None:
        for row, rank in enumerate(step.ranks.local):
            step.parameters[0][row] += 1e-6 * rank


@breaks("gradients that are not finite do not stop it")
class NeedsNumbers(Mitigation):
    def on_gradients(self, step: Step) -> None:
        int(step.gradients[0].sum())


@breaks("a parameter that no step uses is no obstacle")
class PairsThemUp(Mitigation):
    def on_gradients(self, step: Step) -> None:
        for grad_Ln, _ in zip(step.gradients, step.parameters, strict=True):
            grad_Ln.clamp_(-1, 1)


@breaks("it trains in half precision too")
class GoesThroughNumpy(Mitigation):
    def on_gradients(self, step: Step) -> None:
        for grad_Ln in step.gradients:
            grad_Ln.numpy().clip(-1, 1)


@breaks("aggregate is declared where it is overridden")
class NeverCalled(Median):
    aggregates = False


@breaks("aggregate is declared where it is overridden")
class NothingToCall(Mitigation):
    aggregates = True


@breaks("aggregate returns one row or one a rank in the same dtype")
class OneAxisLess(Mitigation):
    aggregates = True

    def aggregate(self, grad_Ln: Tensor, ranks: Ranks) -> Tensor:
        return ranks.mean(grad_Ln)[0]


@breaks("aggregate returns one row or one a rank in the same dtype")
class AlwaysFloat32(Mitigation):
    aggregates = True

    def aggregate(self, grad_Ln: Tensor, ranks: Ranks) -> Tensor:
        return ranks.mean(grad_Ln.float())


@breaks("a rule for elements does not see how buckets cut")
class NormOfTheBucket(Mitigation):
    aggregates = True

    def aggregate(self, grad_Ln: Tensor, ranks: Ranks) -> Tensor:
        mean_1n = ranks.mean(grad_Ln)
        return mean_1n / mean_1n.norm().clamp(min=1e-6)


@breaks("it neither uses nor moves a global random generator")
class Dithers(Mitigation):
    def on_gradients(self, step: Step) -> None:
        for grad_Ln in step.gradients:
            grad_Ln += 1e-3 * torch.randn(grad_Ln.shape[1])


@breaks("it neither uses nor moves a global random generator")
class DithersAndPutsItBack(Mitigation):
    def on_gradients(self, step: Step) -> None:
        with torch.random.fork_rng(devices=[]):
            for grad_Ln in step.gradients:
                grad_Ln += 1e-3 * torch.randn(grad_Ln.shape[1])


@breaks("it neither uses nor moves a global random generator")
class AggregatesAtRandom(Mitigation):
    aggregates = True

    def aggregate(self, grad_Ln: Tensor, ranks: Ranks) -> Tensor:
        return ranks.mean(grad_Ln) * (1 + 1e-3 * torch.rand(1))


@breaks("it resumes from a checkpoint bit for bit")
class RemembersInTheClass(Mitigation):
    past: ClassVar[list[Tensor]] = []

    def on_gradients(self, step: Step) -> None:
        grad_Ln = step.gradients[0]
        now_Ln = grad_Ln.clone()
        if step.index and self.past and self.past[0].shape == now_Ln.shape:
            grad_Ln += 0.5 * self.past[0]
        self.past[:] = [now_Ln]


@breaks("it resumes from a checkpoint bit for bit")
class StateThatNoCheckpointHolds(Mitigation):
    def init(self, layout: Layout, ranks: Ranks) -> dict[str, Any]:
        return {"layout": layout}


@breaks("looking at its state leaves the trajectory as it is")
class AppliesWhenLookedAt(Mitigation):
    def init(self, layout: Layout, ranks: Ranks) -> dict[str, Any]:
        return {"lag": 0}

    def on_step(self, step: Step) -> None:
        step.state["lag"] += 1
        step.parameters[0].mul_(1 - 1e-3 * step.state["lag"])

    def pending(self, state: dict[str, Any]) -> dict[str, Any]:
        state["lag"] = 0
        return state


@breaks("flushing twice does no more than once")
class ShrinksAtEachFlush(Mitigation):
    def flush(self, step: Step) -> None:
        step.parameters[0].mul_(0.5)


@breaks("it declares the memory it keeps")
class KeepsACopy(Mitigation):
    def init(self, layout: Layout, ranks: Ranks) -> dict[str, Any]:
        return {"copy": torch.zeros(len(ranks.local), 10 * layout.size)}


@breaks("it declares the memory it keeps")
class DoesNotKnowItsMemory(Mitigation):
    def memory_bytes(self, layout: Layout) -> int:
        return None  # type: ignore[return-value]


@breaks("the plugin itself holds no state")
class CountsItsSteps(Mitigation):
    def on_step(self, step: Step) -> None:
        object.__setattr__(self, "steps", getattr(self, "steps", 0) + 1)


@breaks("processes decide alike and give the bits of one")
class DecidesAlone(Mitigation):
    def on_step(self, step: Step) -> None:
        step.synced = step.ranks.hosts_first


@breaks("processes decide alike and give the bits of one")
class MeansOverTheHostedRanks(Mitigation):
    def on_step(self, step: Step) -> None:
        for block_Ln in step.parameters:
            block_Ln.copy_(block_Ln.mean(0, keepdim=True).expand_as(block_Ln))
