"""Faults and mitigations on a user's own DDP model and optimizer, without a change to the training loop."""

import copy
from collections.abc import Sequence
from types import TracebackType
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.amp.grad_scaler import GradScaler
from torch.nn.parallel import DistributedDataParallel

from paftbench.attachment.agreement import require_same
from paftbench.attachment.checks import ddp_of, listed, real_optimizer, require_held, whole
from paftbench.attachment.reduction import Reduction
from paftbench.attachment.relay import Bucket, GradientMark, Relay, relay_of, untraced
from paftbench.attachment.rounds import Loop
from paftbench.attachment.scaling import Scaling, calling_scaler, enabled
from paftbench.errors import Refused
from paftbench.faults.injector import Injector, Strikes
from paftbench.faults.log import Row
from paftbench.faults.model import Fault
from paftbench.mitigations.contract import Mitigation
from paftbench.ranks.axis import Ranks
from paftbench.ranks.layout import Layout, trainable
from paftbench.ranks.replicas import Replicas
from paftbench.step.metrics import Clock, spread
from paftbench.step.pipeline import Pipeline


class Attachment:
    """One hook and two optimizer hooks; strikes and mitigations come in our order, whatever else the user registered.

    A step is one completed aggregation and the optimizer's decision after it. With `accumulation=k`, k synchronised
    backward passes make one step, and faults strike its last. With a `scaler`, mitigations see gradients once they are
    unscaled, and a step is over when `scaler.step` is. Every rank of the model's group must attach, with the same
    arguments.
    """

    def __init__(
        self,
        ddp: nn.Module,
        optimizer: torch.optim.Optimizer,
        scaler: GradScaler | None = None,
        *,
        faults: Sequence[Fault] = (),
        mitigations: Sequence[Mitigation] = (),
        seed: int = 0,
        accumulation: int = 1,
        exact: bool = False,
        clock: Clock | None = None,
    ) -> None:
        faults, mitigations = listed("faults", faults, Fault), listed("mitigations", mitigations, Mitigation)
        whole("seed", seed)
        self._loop = Loop(accumulation=whole("accumulation", accumulation))
        model, scaler = ddp_of(ddp), enabled(scaler)
        optimizer = real_optimizer(optimizer, scaler)
        named = trainable(model.module)
        require_held(optimizer, named)
        self._relay = _free_relay(model)
        self.layout = Layout.of(model.module)
        group: dist.ProcessGroup = model.process_group
        ranks = Ranks.of_group(dist.get_world_size(group), group, exact=exact)
        owners = [(slot.start, parameter) for slot, (_, parameter) in zip(self.layout.slots, named, strict=True)]
        replicas = Replicas(self.layout, ranks, [model.module], optimizer, owners)
        unused = model.find_unused_parameters or model.static_graph
        injector = Injector(faults, self.layout, ranks, seed=seed, separate=unused)
        self.pipeline = Pipeline(replicas, injector, mitigations, clock)
        require_same(ranks, {
            "faults": faults, "mitigations": mitigations, "seed": seed, "accumulation": accumulation,
            "exact": exact, "scaler": None if scaler is None else "enabled",
        })  # fmt: skip
        self._parameters = [parameter for _, parameter in named]
        self._reduction = Reduction(self.layout, self._parameters, ranks, mitigations)
        self._in_round = False
        self._striking = False
        self._views = model.gradient_as_bucket_view
        self._left: GradientMark | None = None
        self._relay.receiver = self
        self._scaling: Scaling | None = None
        if scaler is not None:
            self._scaling = scaling = Scaling(scaler, optimizer, ranks, self)
            self.pipeline.loss_scale = lambda: scaling.scale
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

    def injections(self) -> list[Row]:
        """A row for every strike on this rank since the last call, as in `injections.jsonl`."""
        return self.pipeline.injector.drain()

    def divergence(self) -> float:
        """RMS over ranks of the distance to the mean parameters; every rank must call it."""
        return spread(self.pipeline.replicas.parameters, self.pipeline.replicas.ranks)

    def state_dict(self) -> dict[str, Any]:
        """This rank's part of a checkpoint taken between two steps: what is pending, counts, what faults remember.

        No rank waits for another. Tensors, numbers, strings, lists and dicts only, so it loads with `weights_only`.
        """
        state = {"plugins": self._plugins(), **self._loop.state_dict(), "pipeline": self.pipeline.state_dict()}
        return copy.deepcopy(state)

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """Continue from `state_dict()`; model, optimizer, scaler and schedule are the user's to restore, on each rank.

        `ValueError` where the attachment was made with other faults or mitigations.
        """
        if saved["plugins"] != self._plugins():
            raise Refused(f"the state is of {saved['plugins']}, but attached are {self._plugins()}")
        self._loop.load_state_dict(saved)
        self.pipeline.load_state_dict(copy.deepcopy(saved["pipeline"]))

    def detach(self) -> None:
        """Apply what mitigations hold back and leave plain DDP, bit for bit. Every rank must call it."""
        if self._relay.receiver is not self:
            return
        if self._relay.failure is None:
            self.starting()
            self.pipeline.flush()
        self._unplug()

    def __enter__(self) -> "Attachment":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None and self._relay.receiver is self:
            try:
                self._loop.require_used()
            except RuntimeError:
                self._unplug()
                raise
            self.detach()
        self._unplug()

    def _plugins(self) -> list[str]:
        faults = [f"fault {cover.fault.name}" for cover in self.pipeline.injector.covers]
        return faults + [f"mitigation {mitigation.name}" for mitigation in self.pipeline.mitigations]

    # --- what the model's hook calls ---------------------------------------------------------------------------------

    def starting(self) -> None:
        """Close a step whose update was skipped, before the parameters are read again."""
        if self._loop.undecided:
            self._loop.overtaken = True
            self._close_step(skipped=True)

    def reduce(self, bucket: Bucket) -> torch.futures.Future[torch.Tensor]:
        """Strike this rank's contribution in the bucket and reduce it."""
        if not self._in_round:
            self._begin_round()
        if self._striking and self.pipeline.wants_contributions:
            cut = self._reduction.cut(bucket)
            pieces = [(slot.start, bucket.buffer_n[offset : offset + size]) for slot, offset, size in cut]
            self.pipeline.contributing(0, pieces)
        with self.pipeline.clock.section("aggregate"):
            return self._reduction.reduce(bucket, self._relay.group)

    def finished(self) -> None:
        """The round's gradients are in place: strikes and mitigations on the last round of a step."""
        progress, self._in_round = self._loop, False
        progress.rounds, progress.overtaken = progress.rounds + 1, False
        if self._left is not None:
            progress.piled, self._left = progress.piled + 1 if self._left.added_to else 0, None
        if not self._striking:
            return
        progress.undecided, progress.mitigated = True, False
        self.pipeline.received()
        if self._scaling is None:
            self._mitigate()
        if not self._views:
            self._left = GradientMark(self._parameters)

    def _begin_round(self) -> None:
        self.starting()
        self._in_round, self._striking = True, self._loop.in_last
        if self._striking:
            self.pipeline.begin()

    # --- what the optimizer's hooks and the scaler call --------------------------------------------------------------

    @untraced
    def _before_update(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        if all(argument is None for argument in (*args[1:], *kwargs.values())):  # a closure runs backward() in step()
            self._loop.require_complete()
            self._loop.require_open()
        if self._scaling is None and calling_scaler() is not None:
            raise RuntimeError(
                "the optimizer is stepped by a GradScaler that was not given to attach(): a rank could skip its update "
                "alone; use attach(ddp, optimizer, scaler, ...)"
            )
        if self._scaling is not None and not self._scaling.stepping:
            raise RuntimeError(
                "attached with a GradScaler, but optimizer.step() was called without it: use scaler.step(optimizer), "
                "or attach without scaler"
            )

    @untraced
    def _after_update(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        self._loop.require_complete()
        if self._scaling is None:
            self.stepped(skipped=False)

    def unscaling(self) -> None:
        """Refuse to unscale gradients that are not complete."""
        self._loop.require_complete()
        self._loop.require_open()

    def unscaled(self, skipping: bool) -> None:
        """Mitigate the gradients now that they are in their own units."""
        if self._loop.undecided and not self._loop.mitigated:
            self._mitigate(skipped=skipping)

    def stepped(self, skipped: bool) -> None:
        """The optimizer, or its scaler, has decided: close the step."""
        self._loop.updates += 1
        self._loop.piled, self._left = 0, None
        if self._loop.undecided:
            self._close_step(skipped=skipped)

    def _mitigate(self, *, skipped: bool = False) -> None:
        self._loop.mitigated = True
        self.pipeline.mitigate_gradients(skipped=skipped)

    def _close_step(self, *, skipped: bool) -> None:
        self._loop.undecided = False
        if not self._loop.mitigated:
            self._mitigate(skipped=skipped)
        self.pipeline.updated(skipped=skipped)

    def _unplug(self) -> None:
        for hook in self._hooks:
            hook.remove()
        if self._scaling is not None:
            self._scaling.release()
            self._scaling = None
        if self._relay.receiver is self:
            self._relay.receiver = None


def _free_relay(model: DistributedDataParallel) -> Relay:
    relay = relay_of(model)
    relay.check()
    if relay.receiver is not None:
        raise Refused("the model is attached already; detach it before attaching it to another optimizer")
    return relay


def attach(
    ddp: nn.Module,
    optimizer: torch.optim.Optimizer,
    scaler: GradScaler | None = None,
    *,
    faults: Sequence[Fault] = (),
    mitigations: Sequence[Mitigation] = (),
    seed: int = 0,
    accumulation: int = 1,
    exact: bool = False,
) -> Attachment:
    """Put faults and mitigations between a DDP model and its optimizer; use it as a context manager or `detach()`.

    `ddp` may be compiled, `optimizer` wrapped as Accelerate does; a loop that scales its loss passes its `scaler`.
    `ValueError` for a model that is not DDP, has a hook or is attached, and for an optimizer that does not hold its
    parameters or whose updates are no steps. Where the next forward pass with gradients begins before the optimizer
    has stepped, the update counts as skipped.
    """
    return Attachment(
        ddp, optimizer, scaler, faults=faults, mitigations=mitigations, seed=seed, accumulation=accumulation,
        exact=exact,
    )  # fmt: skip
