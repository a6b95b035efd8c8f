"""Faults and mitigations on a user's own DDP model and optimizer, without a change to the training loop."""

from collections.abc import Sequence
from types import TracebackType
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from paftbench.aggregation import aggregate, aggregator, segments_of
from paftbench.ddp import Bucket, Relay, done, relay_of, start_mean
from paftbench.faults import Fault
from paftbench.injector import Injector, Strikes
from paftbench.layout import Layout, Slot, trainable
from paftbench.metrics import Clock, spread
from paftbench.mitigations.contract import Mitigation
from paftbench.pipeline import Pipeline
from paftbench.ranks import Ranks
from paftbench.replicas import Replicas


class Attachment:
    """One hook and two optimizer hooks; strikes and mitigations come in our order, whatever else the user registered.

    A step is one completed aggregation and the optimizer's decision after it. With `accumulation=k`, k synchronised
    backward passes make one step, and faults strike its last. Every rank of the model's group must attach, with the
    same arguments.
    """

    def __init__(
        self,
        ddp: DistributedDataParallel,
        optimizer: torch.optim.Optimizer,
        *,
        faults: Sequence[Fault] = (),
        mitigations: Sequence[Mitigation] = (),
        seed: int = 0,
        accumulation: int = 1,
        exact: bool = False,
        clock: Clock | None = None,
    ) -> None:
        if accumulation < 1:
            raise ValueError(f"accumulation (backward passes per step) must be >= 1, got {accumulation}")
        self._relay = _free_relay(ddp)
        named = trainable(ddp.module)
        _check_optimizer(optimizer, named)
        self.layout = Layout.of(ddp.module)
        group: dist.ProcessGroup = ddp.process_group
        ranks = Ranks.of_group(dist.get_world_size(group), group, exact=exact)
        owners = [(slot.start, parameter) for slot, (_, parameter) in zip(self.layout.slots, named, strict=True)]
        replicas = Replicas(self.layout, ranks, [ddp.module], optimizer, owners)
        injector = Injector(faults, self.layout, ranks, seed=seed, separate=ddp.find_unused_parameters)
        self.pipeline = Pipeline(replicas, injector, mitigations, clock)
        self._exact = exact
        self._accumulation = accumulation
        self._rule = aggregator(mitigations, self.layout)
        slots = zip(self.layout.slots, named, strict=True)
        self._slots: dict[Tensor, Slot] = {parameter: slot for slot, (_, parameter) in slots}
        self._whole = _WholeGradient(self.layout, named[0][1].device)
        self._rounds = 0
        self._in_round = False
        self._undecided = False
        self._relay.receiver = self
        self._hooks = [
            optimizer.register_step_pre_hook(self._before_update),
            optimizer.register_step_post_hook(self._after_update),
        ]

    @property
    def strikes(self) -> Strikes:
        """Strikes on this rank so far."""
        return self.pipeline.injector.counts

    @property
    def steps(self) -> int:
        """Completed steps."""
        return self.pipeline.step

    @property
    def syncs(self) -> int:
        """Synchronisations of the replicas so far."""
        return self.pipeline.syncs

    def divergence(self) -> float:
        """RMS over ranks of the distance to the mean parameters; every rank must call it."""
        return spread(self.pipeline.replicas.parameters, self.pipeline.replicas.ranks)

    def detach(self) -> None:
        """Apply what mitigations hold back and leave plain DDP, bit for bit. Every rank must call it."""
        if self._relay.receiver is not self:
            return
        if self._relay.failure is None:
            if self._undecided:
                self._close_step()
            self.pipeline.flush()
        self._unplug()

    def __enter__(self) -> "Attachment":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self._unplug()
            return
        self._check_called()
        self.detach()

    def starting(self) -> None:
        """Close a step whose update was skipped, before the parameters are read again; part of the hook."""
        if self._undecided:
            self._close_step()

    def reduce(self, bucket: Bucket) -> torch.futures.Future[torch.Tensor]:
        """Strike this rank's contribution in the bucket and reduce it; part of the hook."""
        if not self._in_round:
            self._begin_round()
        if self._striking:
            pieces = [(slot.start, bucket.buffer_n[offset : offset + size]) for slot, offset, size in self._cut(bucket)]
            self.pipeline.contributing(0, pieces)
        with self.pipeline.clock.section("aggregate"):
            return self._reduced(bucket)

    def finished(self) -> None:
        """The round's gradients are in place: strikes and mitigations on the last round of a step; part of the hook."""
        self._in_round = False
        self._rounds += 1
        if not self._striking_round(self._rounds):
            return
        self._undecided = True
        self.pipeline.received()
        self.pipeline.mitigate_gradients()

    def _begin_round(self) -> None:
        if self._undecided:
            self._close_step()
        self._in_round = True
        self._striking = self._striking_round(self._rounds + 1)
        if self._striking:
            self.pipeline.begin()

    def _striking_round(self, number: int) -> bool:
        return number % self._accumulation == 0

    def _reduced(self, bucket: Bucket) -> torch.futures.Future[torch.Tensor]:
        ranks, buffer_n = self.pipeline.replicas.ranks, bucket.buffer_n
        if self._rule is not None and self._rule.scope == "whole":
            return self._whole.reduce(bucket, self._cut(bucket), ranks, self._rule)
        if self._rule is None and not self._exact:
            ranks.count(buffer_n.view(1, -1))
            return start_mean(buffer_n, self._relay.group)
        starts = [(slot.start, size) for slot, _, size in self._cut(bucket)]
        segments = segments_of(starts, self.layout.size, ranks.world_size)
        buffer_n.copy_(aggregate(buffer_n.view(1, -1), ranks, self._rule, segments)[0])
        return done(buffer_n)

    def _cut(self, bucket: Bucket) -> list[tuple[Slot, int, int]]:
        """(slot, offset in the bucket, elements) of each parameter in a bucket."""
        return [(self._slots[parameter], offset, parameter.numel()) for parameter, offset in bucket.parameters]

    def _before_update(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        if not args[1:] and not kwargs:  # a closure runs backward() inside step()
            self._check_called()

    def _after_update(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        self._check_called()
        if self._undecided:
            self._close_step()

    def _close_step(self) -> None:
        self._undecided = False
        self.pipeline.updated()

    def _check_called(self) -> None:
        if self._rounds == 0:
            raise RuntimeError(
                "the hook was never called: no gradient went through the attached DDP model; call the DDP model, "
                "not its .module, and run backward() outside no_sync() before the optimizer's step"
            )
        if self._rounds % self._accumulation:
            raise RuntimeError(
                f"accumulation (backward passes per step) is {self._accumulation}, but the optimizer stepped after "
                f"{self._rounds % self._accumulation}; passes inside no_sync() do not count"
            )

    def _unplug(self) -> None:
        for hook in self._hooks:
            hook.remove()
        self._relay.receiver = None


class _WholeGradient:
    """Buckets held back until the last one, for rules that need the whole gradient at once."""

    def __init__(self, layout: Layout, device: torch.device) -> None:
        self._layout = layout
        self._device = device
        self._held: list[tuple[Bucket, list[tuple[Slot, int, int]], torch.futures.Future[Tensor]]] = []

    def reduce(
        self, bucket: Bucket, cut: list[tuple[Slot, int, int]], ranks: Ranks, rule: Mitigation
    ) -> torch.futures.Future[Tensor]:
        """A future that resolves when the last bucket has come and the rule has spoken."""
        future: torch.futures.Future[Tensor] = torch.futures.Future()
        self._held.append((bucket, cut, future))
        if bucket.is_last:
            held, self._held = self._held, []
            grad_1N = torch.zeros((1, self._layout.size), dtype=bucket.buffer_n.dtype, device=self._device)
            for part, slots, _ in held:
                for slot, offset, size in slots:
                    grad_1N[0, slot.start : slot.stop] = part.buffer_n[offset : offset + size]
            result_1N = aggregate(grad_1N, ranks, rule)
            for part, slots, waiting in held:
                for slot, offset, size in slots:
                    part.buffer_n[offset : offset + size] = result_1N[0, slot.start : slot.stop]
                waiting.set_result(part.buffer_n)
        return future


def _free_relay(ddp: DistributedDataParallel) -> Relay:
    if not isinstance(ddp, DistributedDataParallel):
        raise ValueError(f"the model must be wrapped in DistributedDataParallel, got {type(ddp).__name__}")
    ignored = sorted(set(ddp.parameters_to_ignore) & {name for name, _ in trainable(ddp.module)})
    if ignored:
        raise ValueError(f"DDP leaves parameter {ignored[0]!r} to each rank; faults and mitigations need it reduced")
    relay = relay_of(ddp)
    relay.check()
    if relay.receiver is not None:
        raise ValueError("the model is attached already; detach it before attaching it to another optimizer")
    return relay


def _check_optimizer(optimizer: torch.optim.Optimizer, named: Sequence[tuple[str, nn.Parameter]]) -> None:
    held = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
    for name, parameter in named:
        if id(parameter) not in held:
            raise ValueError(f"the optimizer does not update parameter {name!r} of the model")


def attach(
    ddp: DistributedDataParallel,
    optimizer: torch.optim.Optimizer,
    scaler: None = None,
    *,
    faults: Sequence[Fault] = (),
    mitigations: Sequence[Mitigation] = (),
    seed: int = 0,
    accumulation: int = 1,
    exact: bool = False,
) -> Attachment:
    """Put faults and mitigations between a DDP model and its optimizer; use it as a context manager or `detach()`.

    `ValueError` for a model that is not DDP, has a hook or is attached, and for an optimizer that does not hold its
    parameters. A GradScaler is refused for now: its skipped steps have to be agreed on by all ranks. A forward pass
    with gradients between `backward()` and the optimizer's step counts the step before it as skipped.
    """
    if scaler is not None:
        raise ValueError("scaler: gradient scaling is not supported yet; train in bf16 or fp32")
    return Attachment(
        ddp, optimizer, faults=faults, mitigations=mitigations, seed=seed, accumulation=accumulation, exact=exact
    )
