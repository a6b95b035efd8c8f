"""What an update takes is what came through the hook: right loops are silent, wrong ones are named at their step."""

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import pytest
import torch
import torch.distributed as dist
from support.processes import together
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import paftbench

Loop = Callable[[DistributedDataParallel, torch.optim.Optimizer], Iterator[int]]
PAST = "that is not the mean over ranks"
STRAY = "did not come through the hook since its last step"


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 4))


def batch(step: int, part: int = 0) -> Tensor:
    return torch.randn(8, 16, generator=torch.Generator().manual_seed(100 * step + 10 * part + dist.get_rank()))


def loss(model: nn.Module, step: int, part: int = 0) -> Tensor:
    out: Tensor = model(batch(step, part))
    return out.square().mean()


def incomplete_window(d: DistributedDataParallel, o: torch.optim.Optimizer) -> Iterator[int]:
    """4 batches a step of 10: the last step has two, both inside no_sync()."""
    for part in range(10):
        with nullcontext() if part % 4 == 3 else d.no_sync():
            loss(d, 0, part).backward()
        if part % 4 == 3 or part == 9:
            o.step()
            o.zero_grad()
            yield part


def past_the_wrapper(d: DistributedDataParallel, o: torch.optim.Optimizer) -> Iterator[int]:
    for step in range(8):
        o.zero_grad()
        loss(d if step < 5 else d.module, step).backward()
        o.step()
        yield step


def past_the_wrapper_and_zeros(d: DistributedDataParallel, o: torch.optim.Optimizer) -> Iterator[int]:
    for step in range(8):
        o.zero_grad(set_to_none=False)
        loss(d if step < 5 else d.module, step).backward()
        o.step()
        yield step


def two_forwards_two_backwards(d: DistributedDataParallel, o: torch.optim.Optimizer) -> Iterator[int]:
    for step in range(3):
        o.zero_grad()
        first, second = loss(d, step, 0), loss(d, step, 1)
        first.backward()
        second.backward()
        o.step()
        yield step


def more_after_the_synchronised_pass(d: DistributedDataParallel, o: torch.optim.Optimizer) -> Iterator[int]:
    for step in range(3):
        o.zero_grad()
        loss(d, step).backward()
        if step == 2:
            loss(d.module, step, 1).backward()
        o.step()
        yield step


def one_layer_past_the_hook(d: DistributedDataParallel, o: torch.optim.Optimizer) -> Iterator[int]:
    """A penalty that is added to the gradient by hand, after the mean."""
    for step in range(3):
        o.zero_grad()
        loss(d, step).backward()
        if step == 1:
            d.module[2].weight.square().sum().mul(dist.get_rank()).backward()
        o.step()
        yield step


def unfrozen_later(d: DistributedDataParallel, o: torch.optim.Optimizer) -> Iterator[int]:
    for step in range(4):
        if step == 2:
            d.module[0].bias.requires_grad_(True)
        o.zero_grad()
        loss(d, step).backward()
        o.step()
        yield step


def adapter_added_later(d: DistributedDataParallel, o: torch.optim.Optimizer) -> Iterator[int]:
    for step in range(4):
        if step == 2:
            d.module.append(nn.Linear(4, 4))
            o.add_param_group({"params": d.module[3].parameters()})
        o.zero_grad()
        loss(d, step).backward()
        o.step()
        yield step


def group_from_elsewhere(d: DistributedDataParallel, o: torch.optim.Optimizer) -> Iterator[int]:
    extra = nn.Parameter(torch.ones(3))
    for step in range(4):
        if step == 2:
            o.add_param_group({"params": [extra]})
        o.zero_grad()
        (loss(d, step) + extra.sum() * dist.get_rank()).backward()
        o.step()
        yield step


def only_in_no_sync(d: DistributedDataParallel, o: torch.optim.Optimizer) -> Iterator[int]:
    for step in range(4):
        o.zero_grad()
        with nullcontext() if step < 3 else d.no_sync():
            loss(d, step).backward()
        o.step()
        yield step


# The loop, the first step that is wrong, and the error's words.
WRONG: dict[str, tuple[Loop, int, str]] = {
    "an incomplete window": (incomplete_window, 9, STRAY),
    "forward through .module": (past_the_wrapper, 5, STRAY),
    "the same, with zeros": (past_the_wrapper_and_zeros, 5, STRAY),
    "two forwards, two backwards": (two_forwards_two_backwards, 0, f"'0.bias' {PAST}"),
    "a pass through .module after the mean": (more_after_the_synchronised_pass, 2, f"'0.bias' {PAST}"),
    "one layer after the mean": (one_layer_past_the_hook, 1, f"'2.weight' {PAST}"),
    "unfrozen later": (unfrozen_later, 2, f"'0.bias' {PAST}"),
    "an adapter added later": (adapter_added_later, 2, f"'3.weight' {PAST}"),
    "a group from elsewhere": (group_from_elsewhere, 2, f"of shape [3], which the model does not have, {PAST}"),
    "the last step in no_sync()": (only_in_no_sync, 3, STRAY),
}


def named_at(loop: str) -> tuple[list[int], str]:
    own, _, _ = WRONG[loop]
    model = net()
    if loop == "unfrozen later":
        model[0].bias.requires_grad_(False)
    d = DistributedDataParallel(model)
    o = torch.optim.SGD(d.parameters(), lr=0.1)
    done: list[int] = []
    try:
        with paftbench.attach(d, o):
            for step in own(d, o):
                done.append(step)
    except RuntimeError as error:
        return done, str(error)
    return done, "nothing was refused"


@pytest.mark.parametrize("loop", WRONG)
def test_a_wrong_loop_is_named_at_its_step_with_the_parameter(loop: str) -> None:
    _, first, words = WRONG[loop]
    for done, error in together(named_at, 2, loop):
        assert words in error, error
        assert [step for step in done if step >= first] == [], "before anything was taken"


def unfrozen_before() -> str:
    model = net()
    model[0].bias.requires_grad_(False)
    d = DistributedDataParallel(model)
    model[0].bias.requires_grad_(True)
    try:
        paftbench.attach(d, torch.optim.SGD(d.parameters(), lr=0.1))
    except ValueError as error:
        return str(error)
    return "nothing was refused"


def test_a_layer_that_was_unfrozen_between_wrapping_and_attaching_is_refused() -> None:
    for error in together(unfrozen_before, 2):
        assert error.startswith("DDP reduces 3 parameters, and 4 of the model are trainable now"), error


def plain(d: Any, o: torch.optim.Optimizer, **options: Any) -> None:
    for step in range(3):
        o.zero_grad(**options)
        loss(d, step).backward()
        o.step()


def zeros(d: Any, o: torch.optim.Optimizer) -> None:
    plain(d, o, set_to_none=False)


def quiet_passes(d: Any, o: torch.optim.Optimizer) -> None:
    for step in range(3):
        o.zero_grad()
        for part in range(3):
            with nullcontext() if part == 2 else d.no_sync():
                loss(d, step, part).backward()
        o.step()


def clipped(d: Any, o: torch.optim.Optimizer) -> None:
    for step in range(3):
        o.zero_grad()
        loss(d, step).backward()
        nn.utils.clip_grad_norm_(d.parameters(), 0.1)
        o.step()


def changed_by_hand(d: Any, o: torch.optim.Optimizer) -> None:
    for step in range(3):
        o.zero_grad()
        loss(d, step).backward()
        for parameter in d.parameters():
            parameter.grad = parameter.grad * 0.5 + 1e-4 * parameter.detach()
        o.step()


def some_left_out(d: Any, o: torch.optim.Optimizer) -> None:
    for step in range(3):
        o.zero_grad()
        loss(d, step).backward()
        if step % 2:
            d.module[0].weight.grad = None
        o.step()


def evaluated(d: Any, o: torch.optim.Optimizer) -> None:
    for step in range(3):
        plain_step(d, o, step)
        with torch.no_grad():
            loss(d.module, step)


def plain_step(d: Any, o: torch.optim.Optimizer, step: int) -> None:
    o.zero_grad()
    loss(d, step).backward()
    o.step()


def gradients_for_another_use(d: Any, o: torch.optim.Optimizer) -> None:
    """`autograd.grad` enters no gradient."""
    for step in range(3):
        o.zero_grad()
        loss(d, step).backward()
        torch.autograd.grad(loss(d.module, step, 1), list(d.module.parameters()))
        o.step()


def thrown_away(d: Any, o: torch.optim.Optimizer) -> None:
    """A pass through `.module` whose gradients are dropped before the step's own."""
    for step in range(3):
        loss(d.module, step, 1).backward()
        o.zero_grad()
        loss(d, step).backward()
        o.step()


def several_losses_in_one_pass(d: Any, o: torch.optim.Optimizer) -> None:
    for step in range(3):
        o.zero_grad()
        (loss(d, step) + 0.1 * d.module[0].weight.square().sum()).backward()
        o.step()


def with_a_closure(d: Any, o: torch.optim.Optimizer) -> None:
    for step in range(3):

        def closure(step: int = step) -> Tensor:
            o.zero_grad()
            found = loss(d, step)
            found.backward()
            return found

        o.step(closure)  # type: ignore[arg-type]


def zeroed_after(d: Any, o: torch.optim.Optimizer) -> None:
    for step in range(3):
        loss(d, step).backward()
        o.step()
        o.zero_grad()


def of_the_users_own(d: Any, o: torch.optim.Optimizer) -> None:
    """What the optimizer held besides the model when it was attached is let be."""
    own = o.param_groups[-1]["params"][0]
    for step in range(3):
        o.zero_grad()
        (loss(d, step) + own.square().sum()).backward()
        o.step()


RIGHT: dict[str, tuple[Callable[[Any, torch.optim.Optimizer], None], dict[str, Any]]] = {
    "plain": (plain, {}),
    "zeros for gradients": (zeros, {}),
    "accumulation in no_sync()": (quiet_passes, {}),
    "clipping": (clipped, {}),
    "gradients changed by hand": (changed_by_hand, {}),
    "gradients left out": (some_left_out, {}),
    "evaluation through .module": (evaluated, {}),
    "autograd.grad": (gradients_for_another_use, {}),
    "a pass that is thrown away first": (thrown_away, {}),
    "several losses": (several_losses_in_one_pass, {}),
    "a closure": (with_a_closure, {}),
    "zeroed after": (zeroed_after, {}),
    "gradients in buckets": (plain, {"gradient_as_bucket_view": True}),
    "quiet passes, gradients in buckets": (quiet_passes, {"gradient_as_bucket_view": True}),
    "zeros, gradients in buckets": (zeros, {"gradient_as_bucket_view": True}),
    "static graph": (plain, {"static_graph": True}),
    "looks for unused parameters": (plain, {"find_unused_parameters": True}),
    "small buckets": (plain, {"bucket_cap_mb": 0.0005}),
    "a parameter of the user's own": (of_the_users_own, {}),
}


def silent(loop: str) -> list[list[float]]:
    """Attached without a fault, and plain DDP: the weights of both."""
    train, options = RIGHT[loop]
    found = []
    for attached in (True, False):
        d = DistributedDataParallel(net(), **options)
        own = [{"params": [nn.Parameter(torch.ones(2))]}] if loop == "a parameter of the user's own" else []
        o = torch.optim.SGD([{"params": list(d.parameters())}, *own], lr=0.1, momentum=0.9)
        with paftbench.attach(d, o) if attached else nullcontext():
            train(d, o)
        found.append([value for parameter in d.parameters() for value in parameter.detach().flatten().tolist()])
    return found


@pytest.mark.parametrize("loop", RIGHT)
def test_a_right_loop_is_silent_and_plain_ddp_to_the_bit(loop: str) -> None:
    for attached, alone in together(silent, 2, loop):
        assert attached == alone
