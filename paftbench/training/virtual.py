"""The virtual placement: L ranks in one process, as ordinary modules whose parameters are views into flat blocks.

Shapes: L = ranks hosted here, n = elements of a block. With one block (the usual case) one optimizer updates all L
replicas at once; element-wise optimizers do not notice. A process of P x L ranks is the same with a group.
"""

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from paftbench.faults.fault import Fault
from paftbench.faults.injector import Injector
from paftbench.mitigations.contract import Mitigation
from paftbench.ranks.axis import Ranks
from paftbench.ranks.layout import Layout, Slot, trainable
from paftbench.ranks.replicas import Replicas
from paftbench.step.aggregation import aggregate, aggregator, segments_of
from paftbench.step.metrics import Clock
from paftbench.step.pipeline import Pipeline

LossOf = Callable[[nn.Module, int], Tensor]  # (module, rank) -> scalar loss of the rank's next batch


class Virtual:
    """L replicas of one model, trained in lock-step.

    `split` gives every parameter a block of its own, for models in which a step may leave one unused.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer_of: Callable[[list[nn.Parameter]], torch.optim.Optimizer],
        ranks: Ranks,
        *,
        rank_seeds: Sequence[int],
        faults: Sequence[Fault] = (),
        mitigations: Sequence[Mitigation] = (),
        fault_seed: int = 0,
        split: bool = False,
        clock: Clock | None = None,
    ) -> None:
        self.ranks = ranks
        self.layout = Layout.of(model)
        self.spare = copy.deepcopy(model)
        self.modules = [model, *(copy.deepcopy(model) for _ in ranks.local[1:])]
        self.blocks = [_Block(slots, self.modules, ranks, self.layout) for slots in _runs(self.layout, split)]
        self.optimizer = optimizer_of([block.owner for block in self.blocks])
        owners = [(block.start, block.owner) for block in self.blocks]
        self.replicas = Replicas(self.layout, ranks, self.modules, self.optimizer, owners)
        injector = Injector(faults, self.layout, ranks, seed=fault_seed, separate=split)
        self.pipeline = Pipeline(self.replicas, injector, mitigations, clock)
        self._rule = aggregator(mitigations, self.layout)
        self._split = split
        self._random = [_RankRandom(seed, next(model.parameters()).device) for seed in rank_seeds]

    def backward(self, loss_of: LossOf) -> list[float]:
        """Forward, backward, aggregation, strikes and `on_gradients` of one step; the L losses."""
        pipeline, clock = self.pipeline, self.pipeline.clock
        for block in self.blocks:
            block.check()
        pipeline.begin()
        losses = []
        for row, rank in enumerate(self.ranks.local):
            with clock.section("compute"), self._random[row].active():
                loss = loss_of(self.modules[row], rank)
                loss.backward()
            losses.append(loss.detach())
            with clock.section("aggregate"):
                for block in self.blocks:
                    block.collect(row, required=not self._split)
        with clock.section("aggregate"):
            for block in self.blocks:
                used = not self._split or self.ranks.any(block.used_L)
                block.owner.grad = block.grad_Ln if used else None
        for row in range(len(self.ranks.local)):
            # Also what no rank used: a DDP bucket carries zeros for it, which strikes meet and nobody reads.
            pipeline.contributing(row, [(block.start, block.grad_Ln[row]) for block in self.blocks])
        with clock.section("aggregate"):
            self._aggregate()
        pipeline.received()
        pipeline.mitigate_gradients()
        return [float(loss) for loss in losses]

    def update(self) -> None:
        """The optimizer's update and `on_step`."""
        with self.pipeline.clock.section("optimizer"):
            self.optimizer.step()
        self.pipeline.updated()
        for block in self.blocks:
            block.check()

    def state_dict(self) -> dict[str, Any]:
        """Everything the trajectory depends on, as tensors, numbers, lists and dicts."""
        return {
            "parameters": [block.owner.detach() for block in self.blocks],
            "buffers": [dict(module.named_buffers()) for module in self.modules],
            "optimizer": self.optimizer.state_dict(),
            "random": [random.state_dict() for random in self._random],
            "pipeline": self.pipeline.state_dict(),
        }

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        for block, value_Ln in zip(self.blocks, saved["parameters"], strict=True):
            block.owner.detach().copy_(value_Ln)
        for module, values in zip(self.modules, saved["buffers"], strict=True):
            for name, buffer in module.named_buffers():
                buffer.copy_(values[name])
        self.optimizer.load_state_dict(saved["optimizer"])
        for random, state in zip(self._random, saved["random"], strict=True):
            random.load_state_dict(state)
        self.pipeline.load_state_dict(saved["pipeline"])

    def _aggregate(self) -> None:
        """All blocks, used or not: the traffic is that of DDP, whose buckets carry zeros for an unused parameter."""
        if self._rule is not None and self._rule.scope == "whole" and len(self.blocks) > 1:
            grad_LN = torch.cat([block.grad_Ln for block in self.blocks], dim=1)
            result_LN = aggregate(grad_LN, self.ranks, self._rule)
            for block in self.blocks:
                block.grad_Ln.copy_(result_LN[:, block.start : block.stop])
            return
        for block in self.blocks:
            block.grad_Ln.copy_(aggregate(block.grad_Ln, self.ranks, self._rule, block.segments))


class _Block:
    """A contiguous run of parameters of one dtype: [L, n] values and gradients, and every module's views into them."""

    def __init__(self, slots: list[Slot], modules: list[nn.Module], ranks: Ranks, layout: Layout) -> None:
        self.start, self.stop = slots[0].start, slots[-1].stop
        named = [dict(trainable(module)) for module in modules]
        self._places = [[_place_of(module, slot.name) for slot in slots] for module in modules]
        self.parameters = [[by_name[slot.name] for slot in slots] for by_name in named]
        first = self.parameters[0][0]
        values_Ln = torch.empty((len(modules), self.stop - self.start), dtype=first.dtype, device=first.device)
        self.grad_Ln = torch.zeros_like(values_Ln)
        self.owner = nn.Parameter(values_Ln)
        self.used_L = [False] * len(modules)
        self.segments = segments_of([(self.start, self.stop - self.start)], layout.size, ranks.world_size)
        self._slots = slots
        self._values = [self._views(values_Ln[row]) for row in range(len(modules))]
        self._gradients = [self._views(self.grad_Ln[row]) for row in range(len(modules))]
        for parameters, views in zip(self.parameters, self._values, strict=True):
            for parameter, view in zip(parameters, views, strict=True):
                view.copy_(parameter.detach())
                parameter.data = view

    def collect(self, row: int, *, required: bool) -> None:
        """Move the gradients that backward left on a module's parameters into its row; an unused one gives zeros."""
        self.used_L[row] = False
        for slot, parameter, view in zip(self._slots, self.parameters[row], self._gradients[row], strict=True):
            if parameter.grad is not None:
                view.copy_(parameter.grad)
                parameter.grad = None
                self.used_L[row] = True
            elif required:
                raise RuntimeError(
                    f"parameter {slot.name!r} got no gradient; a workload whose steps may leave parameters unused "
                    "says find_unused_parameters = True"
                )
            else:
                view.zero_()

    def check(self) -> None:
        """`RuntimeError` when a parameter has lost its place in the block, and so its updates."""
        for places, views in zip(self._places, self._values, strict=True):
            for slot, (holder, name), view in zip(self._slots, places, views, strict=True):
                if holder[name].data_ptr() != view.data_ptr():
                    raise RuntimeError(
                        f"parameter {slot.name!r} is no longer the view that the optimizer updates: it was replaced by "
                        ".to(), load_state_dict(assign=True) or the like"
                    )

    def _views(self, flat_n: Tensor) -> list[Tensor]:
        return [flat_n[s.start - self.start : s.stop - self.start].view(s.shape) for s in self._slots]


def _place_of(module: nn.Module, name: str) -> tuple[dict[str, Any], str]:
    """The table that holds a parameter of a module, and its name there."""
    path, _, leaf = name.rpartition(".")
    return module.get_submodule(path)._parameters, leaf


class _RankRandom:
    """One rank's state of torch's global generators."""

    def __init__(self, seed: int, device: torch.device) -> None:
        self._device = device
        self._cpu = torch.Generator().manual_seed(seed).get_state()
        self._cuda = torch.Generator(device).manual_seed(seed).get_state() if device.type == "cuda" else None

    @contextmanager
    def active(self) -> Iterator[None]:
        """Let the rank's modules draw from the rank's own state."""
        torch.set_rng_state(self._cpu)
        if self._cuda is not None:
            torch.cuda.set_rng_state(self._cuda, self._device)
        yield
        self._cpu = torch.get_rng_state()
        if self._cuda is not None:
            self._cuda = torch.cuda.get_rng_state(self._device)

    def state_dict(self) -> dict[str, Any]:
        return {"cpu": self._cpu, "cuda": self._cuda}

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        self._cpu, self._cuda = saved["cpu"], saved["cuda"]


def _runs(layout: Layout, split: bool) -> list[list[Slot]]:
    """Parameters grouped into blocks: each on its own, or contiguous runs of one dtype."""
    runs: list[list[Slot]] = []
    for slot in layout.slots:
        if runs and not split and runs[-1][-1].dtype == slot.dtype:
            runs[-1].append(slot)
        else:
            runs.append([slot])
    return runs
