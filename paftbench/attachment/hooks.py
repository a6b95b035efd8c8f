"""What model, optimizer and scaler of a user's loop call: each call is an event, and the rounds say what follows."""

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.amp.grad_scaler import GradScaler
from torch.nn.parallel import DistributedDataParallel

from paftbench.attachment.agreement import require_same
from paftbench.attachment.arrivals import Arrivals
from paftbench.attachment.checks import Wanted, ddp_of, real_optimizer, require_held
from paftbench.attachment.reduction import Reduction
from paftbench.attachment.relay import Bucket, GradientMark, Relay, relay_of, untraced
from paftbench.attachment.rounds import DECIDED, STRIKES, Act, Event, Rounds, State
from paftbench.attachment.scaling import STEPPING, Scaling, enabled
from paftbench.errors import Refused
from paftbench.faults.injector import Injector
from paftbench.ranks.axis import Ranks
from paftbench.ranks.layout import Layout, trainable
from paftbench.ranks.replicas import Replicas
from paftbench.step.metrics import Clock
from paftbench.step.pipeline import Pipeline


class Hooks:
    """One hook in the model's relay and two of the optimizer, until `unplug`; what they lead to is the pipeline's.

    With `views`, gradients are views into DDP's buckets.
    """

    def __init__(
        self,
        relay: Relay,
        pipeline: Pipeline,
        optimizer: torch.optim.Optimizer,
        arrivals: Arrivals,
        scaler: GradScaler | None = None,
        *,
        accumulation: int = 1,
        views: bool = False,
    ) -> None:
        replicas = pipeline.replicas
        self.pipeline = pipeline
        self._arrivals = arrivals
        self.rounds = Rounds(
            accumulation=accumulation, scaled=scaler is not None, held=self._held, past_the_hook=arrivals.past_the_hook
        )
        self._acts: dict[Act, Callable[[], None]] = {
            Act.BEGIN: pipeline.begin,
            Act.RECEIVE: pipeline.received,
            Act.MITIGATE: pipeline.mitigate_gradients,
            Act.MITIGATE_SKIPPED: partial(pipeline.mitigate_gradients, skipped=True),
            Act.CLOSE: pipeline.updated,
            Act.CLOSE_SKIPPED: partial(pipeline.updated, skipped=True),
            Act.DISCARD: pipeline.discard,
            Act.FLUSH: pipeline.flush,
        }
        self._parameters = [parameter for _, parameter in replicas.owners]
        self._reduction = Reduction(replicas.layout, self._parameters, replicas.ranks, pipeline.mitigations)
        self._views = views
        self._left: GradientMark | None = None
        self._relay, self._scaler = relay, scaler
        self._undo = ExitStack()
        relay.receiver = self
        self._undo.callback(arrivals.release)
        STEPPING.watch()
        self._undo.callback(STEPPING.unwatch)
        self._undo.callback(optimizer.register_step_pre_hook(self._before_update).remove)
        if scaler is None:
            self._undo.callback(optimizer.register_step_post_hook(self._after_update).remove)
        else:
            scaling = Scaling(scaler, optimizer, replicas.ranks, self.tell)
            self._undo.callback(scaling.release)
            pipeline.loss_scale = lambda: scaling.scale

    @property
    def plugged(self) -> bool:
        return self._relay.receiver is self

    def tell(self, event: Event) -> None:
        """Do what the rounds answer to an event; `RuntimeError` where the loop must not come to it."""
        self._do(self.rounds.on(event))
        if event in DECIDED:
            self._left = None

    def detach(self) -> None:
        """Close what is open, apply what mitigations hold back, unplug."""
        try:
            if self.plugged and self._relay.failure is None:
                self.tell(Event.DETACH)
        finally:
            self.unplug()

    def unplug(self) -> None:
        """Leave model, optimizer and scaler as they were found."""
        self._undo.close()
        if self.plugged:
            self._relay.receiver = None

    # --- the model's hook --------------------------------------------------------------------------------------------

    def starting(self) -> None:
        self.tell(Event.FORWARD)

    def reduce(self, bucket: Bucket) -> torch.futures.Future[torch.Tensor]:
        """Strike this rank's contribution in the bucket and reduce it."""
        self._do(self.rounds.bucket())
        if self.rounds.state in STRIKES and self.pipeline.wants_contributions:
            cut = self._reduction.cut(bucket)
            pieces = [(slot.start, bucket.buffer_n[offset : offset + size]) for slot, offset, size in cut]
            self.pipeline.contributing(0, pieces)
        with self.pipeline.clock.section("aggregate"):
            return self._reduction.reduce(bucket, self._relay.group)

    def finished(self) -> None:
        """The pass's gradients are in place."""
        self._arrivals.reduced()
        left, self._left = self._left, None
        self._do(self.rounds.passed(None if left is None else left.added_to))
        if self.rounds.state is not State.GATHERING and not self._views:
            self._left = GradientMark(self._parameters)

    # --- the optimizer's ---------------------------------------------------------------------------------------------

    @untraced
    def _before_update(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        if STEPPING.scaler is not self._scaler:
            self.tell(Event.BESIDE_SCALER if STEPPING.scaler is None else Event.UNGIVEN_SCALER)
        if all(argument is None for argument in (*args[1:], *kwargs.values())):  # a closure runs backward() in step()
            self.tell(Event.UPDATE)

    @untraced
    def _after_update(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        self.tell(Event.UPDATED)

    def _held(self) -> bool:
        """Whether any parameter holds a gradient; zeros are what `zero_grad(set_to_none=False)` leaves."""
        gradients = (parameter.grad for parameter in self._parameters)
        return any(grad is not None and bool(grad.any()) for grad in gradients)

    def _do(self, acts: tuple[Act, ...]) -> None:
        try:
            for act in acts:
                self._acts[act]()
        except BaseException as error:
            self.rounds.broke(error)
            raise


def hook_up(
    ddp: nn.Module,
    optimizer: torch.optim.Optimizer,
    scaler: GradScaler | None,
    wanted: Wanted,
    clock: Clock | None = None,
) -> Hooks:
    """Put the pipeline of what is wanted between a DDP model and its optimizer, or say why it cannot be."""
    model, scaler = ddp_of(ddp), enabled(scaler)
    optimizer = real_optimizer(optimizer, scaler)
    named = trainable(model.module)
    require_held(optimizer, named)
    relay = _free_relay(model)
    layout = Layout.of(model.module)
    group: dist.ProcessGroup = model.process_group
    ranks = Ranks.of_group(dist.get_world_size(group), group, exact=wanted.exact)
    owners = [(slot.start, parameter) for slot, (_, parameter) in zip(layout.slots, named, strict=True)]
    replicas = Replicas(layout, ranks, [model.module], optimizer, owners)
    unused = model.find_unused_parameters or model.static_graph
    injector = Injector(wanted.faults, layout, ranks, seed=wanted.seed, separate=unused)
    pipeline = Pipeline(replicas, injector, wanted.mitigations, clock)
    require_same(ranks, {**vars(wanted), "scaler": None if scaler is None else "enabled"})
    arrivals = Arrivals(model.module, named, optimizer)
    views = model.gradient_as_bucket_view
    return Hooks(relay, pipeline, optimizer, arrivals, scaler, accumulation=wanted.accumulation, views=views)


def _free_relay(model: DistributedDataParallel) -> Relay:
    relay = relay_of(model)
    relay.check()
    if relay.receiver is not None:
        raise Refused("the model is attached already; detach it before attaching it to another optimizer")
    return relay
