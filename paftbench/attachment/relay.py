"""DDP's communication hook: the only file that sees a `GradBucket`, and the home of the private torch API it needs.

DDP accepts one hook for a model's life and cannot unregister it, so the hook is a relay: it passes buckets through as
DDP would have reduced them, unless an attachment is plugged in. DDP compares the hook's annotations with the types
themselves, so this module must not postpone their evaluation.
"""

import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from paftbench.errors import Refused

Finish = Callable[[], None]

# Keeps torch.compile from tracing into a hook; DDP's own forward is kept out of graphs in the same way.
untraced = torch._disable_dynamo


@dataclass(frozen=True, kw_only=True)
class Bucket:
    """A bucket's flat buffer; `held` gives its parameters in the buffer's order."""

    buffer_n: Tensor
    held: Callable[[], list[Tensor]]
    is_last: bool

    @property
    def parameters(self) -> list[tuple[Tensor, int]]:
        """Each parameter with its offset in the buffer; only within the hook that was given the bucket."""
        found: list[tuple[Tensor, int]] = []
        offset = 0
        for parameter in self.held():
            found.append((parameter, offset))
            offset += parameter.numel()
        if offset != self.buffer_n.numel():
            raise RuntimeError(f"a bucket holds {self.buffer_n.numel()} elements for parameters of {offset}")
        return found


class Receiver(Protocol):
    """What the relay hands buckets to."""

    def starting(self) -> None:
        """A forward pass that may be trained on is about to begin: parameters may be changed, collectives issued."""
        ...

    def reduce(self, bucket: Bucket) -> torch.futures.Future[torch.Tensor]:
        """Reduce a bucket; called in bucket order on every rank, so collectives may be issued here."""
        ...

    def finished(self) -> None:
        """Every bucket's result is in `.grad`, and `backward()` has not returned yet: collectives may be issued."""
        ...


class Relay:
    """The one hook of a DDP model; `receiver` is the attachment, if there is one.

    An exception in a hook leaves DDP's reducer between two steps and the ranks apart, for good: `failure` keeps what
    it was, and the model's next use says so. A copied or pickled model has a reducer of its own, without the hook: its
    relay is not `registered`.
    """

    def __init__(self, ddp: DistributedDataParallel) -> None:
        self.receiver: Receiver | None = None
        self.group: dist.ProcessGroup = ddp.process_group
        self.failure: str | None = None
        self.registered = True
        try:
            ddp.register_comm_hook(self, relay_hook)
        except RuntimeError as error:
            raise Refused(f"the model's communication hook cannot be set: {error}") from error
        ddp.register_forward_pre_hook(self._before_forward)

    def __reduce__(self) -> tuple[Callable[[], "Relay"], tuple[()]]:
        return _unregistered, ()

    def check(self) -> None:
        """`RuntimeError` with the reason where the model cannot be used any more."""
        if self.failure is not None:
            raise RuntimeError(
                f"an earlier error in this model's backward left it unusable ({self.failure}); build model and DDP anew"
            )

    @contextmanager
    def guarded(self) -> Iterator[None]:
        """Whatever is raised inside goes on as it is, and is remembered."""
        try:
            yield
        except BaseException as error:
            self.failure = f"{type(error).__name__}: {error}"
            error.add_note("raised in paftbench's part of backward(); this DDP model cannot be used any more")
            raise

    @untraced
    def _before_forward(self, ddp: DistributedDataParallel, inputs: object) -> None:
        self.check()
        if self.receiver is not None and torch.is_grad_enabled():
            _refuse_join(ddp)
            self.receiver.starting()


def _unregistered() -> Relay:
    """What a copy of a model has in the relay's place."""
    relay = Relay.__new__(Relay)
    relay.receiver, relay.failure, relay.registered = None, None, False
    return relay


class GradientMark:
    """The gradients that a backward pass left, to tell whether the next one adds to them, seen on one parameter.

    It does where the same tensor has since been changed twice: autograd added to it, and DDP copied the mean back.
    Gradients that are views into buckets do not show it.
    """

    def __init__(self, parameters: Sequence[torch.nn.Parameter]) -> None:
        self._parameter = next((parameter for parameter in parameters if parameter.grad is not None), None)
        grad = None if self._parameter is None else self._parameter.grad
        self._grad = None if grad is None else weakref.ref(grad)
        self._version = 0 if grad is None else grad._version

    @property
    def added_to(self) -> bool:
        """Whether a backward pass has come since, without `zero_grad()` before it."""
        if self._parameter is None or self._grad is None:
            return False
        grad = self._parameter.grad
        return grad is not None and grad is self._grad() and grad._version == self._version + 2


def uncompiled(model: object) -> object:
    """The module that `torch.compile` wrapped, or what was given."""
    return getattr(model, "_orig_mod", model)


def _refuse_join(ddp: DistributedDataParallel) -> None:
    """`RuntimeError` where a rank may run out of batches before the others: it would take no step, and they would."""
    config = ddp._join_config
    if config.enable and not config.throw_on_early_termination:
        raise RuntimeError(
            "join() with uneven inputs: a rank without batches takes no optimizer step, so that strikes and "
            "synchronisations would fall apart; give every rank the same number of batches, or detach"
        )


def relay_of(ddp: DistributedDataParallel) -> Relay:
    """The model's relay, registered now if it has none; `ValueError` where somebody else's hook is in place."""
    if getattr(ddp, "_use_python_reducer", False):
        raise Refused(
            "the model was built with torch._dynamo.config.optimize_ddp = 'python_reducer', which reduces gradients "
            "without a bucket; build DDP with another setting"
        )
    hooks = getattr(ddp, "_comm_hooks", [])
    hooks[:] = [(hook, state) for hook, state in hooks if not isinstance(state, Relay) or state.registered]
    for _, state in hooks:
        if isinstance(state, Relay):
            return state
    if hooks:
        name = getattr(hooks[0][0], "__qualname__", repr(hooks[0][0]))
        raise Refused(f"the model already has a communication hook ({name}), and DDP takes only one")
    return Relay(ddp)


def relay_hook(state: Relay, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """The function that DDP calls for each bucket."""
    state.check()
    buffer_n = bucket.buffer()
    if state.receiver is None:
        return start_mean(buffer_n, state.group)
    receiver, is_last = state.receiver, bucket.is_last()
    with state.guarded():
        future = receiver.reduce(Bucket(buffer_n=buffer_n, held=bucket.parameters, is_last=is_last))
    if is_last:
        _after_backward(state.guarded()(receiver.finished))
    return future


def start_mean(buffer_n: Tensor, group: dist.ProcessGroup) -> torch.futures.Future[torch.Tensor]:
    """What DDP does without a hook, to the bit: scale by 1/W in place, then sum."""
    buffer_n.mul_(1.0 / dist.get_world_size(group))
    work = dist.all_reduce(buffer_n, group=group, async_op=True)
    assert work is not None
    return work.get_future().then(_value)


def done(value_n: Tensor) -> torch.futures.Future[torch.Tensor]:
    """A bucket's result that is there already."""
    future: torch.futures.Future[torch.Tensor] = torch.futures.Future()
    future.set_result(value_n)
    return future


def _value(future: torch.futures.Future[list[Tensor]]) -> Tensor:
    return future.value()[0]


def _after_backward(finish: Finish) -> None:
    """Run `finish` after DDP's own end of backward: callbacks run in the order queued, and DDP queues its one between
    these two."""
    engine = torch.autograd.Variable._execution_engine
    engine.queue_callback(lambda: engine.queue_callback(finish))
