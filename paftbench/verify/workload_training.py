"""What a workload promises about its loss and its metric."""

from math import isfinite

import torch
from torch import Tensor, nn

from paftbench.verify.promise import expect, promise
from paftbench.verify.random_states import moved, states
from paftbench.verify.workload_case import WorkloadCase, copies, seeded


@promise()
def its_loss_is_a_finite_scalar_that_reaches_every_parameter(case: WorkloadCase) -> None:
    workload, model = case.make(), case.model()
    for dtype in (torch.float32, torch.bfloat16):
        model = model.to(dtype)
        with seeded(0):
            loss = workload.loss(model, _cast(case.batch(0), dtype))
            scalar = isinstance(loss, Tensor) and loss.ndim == 0
            expect(scalar, "a scalar loss", list(loss.shape) if isinstance(loss, Tensor) else type(loss).__name__)
            value = float(loss.detach())
            expect(isfinite(value), f"a finite loss in {dtype}", value)
            loss.backward()
    missed = [name for name, value in model.named_parameters() if value.requires_grad and value.grad is None]
    if not case.cls.find_unused_parameters:
        expect(not missed, "a gradient for every parameter, or find_unused_parameters = True", f"none for {missed[:3]}")


@promise()
def evaluation_leaves_no_trace(case: WorkloadCase) -> None:
    workload, model = case.make(), case.model()
    model.train()
    if list(model.children()):
        next(module for module in model.modules() if not list(module.children())).training = False  # a user froze it
    with seeded(0):
        workload.loss(model, case.batch(0)).backward()
        # All that a user could lose by an evaluation: weights and statistics, gradients not yet used, frozen layers.
        numbers, gradients, modes = copies(model), _gradients(model), [module.training for module in model.modules()]
        before = states()
        one = workload.evaluate(model)
        used = moved(before, states())
        other = workload.evaluate(model)
    expect(not used, "every global random generator left where it was", f"{used} moved")
    changed = [name for name, value in copies(model).items() if not value.equal(numbers[name])]
    expect(not changed, "parameters and buffers as they were", f"others in {', '.join(changed[:3])}")
    after = _gradients(model)
    kept = after.keys() == gradients.keys() and all(after[name].equal(value) for name, value in gradients.items())
    expect(kept, "gradients as they were", "others")
    modes_now = [module.training for module in model.modules()]
    expect(modes_now == modes, "each module in the mode it was in", "another mode")
    expect(isinstance(one, float) and one == other, f"the same number, {one}, at each evaluation", other)


@promise()
def its_metric_is_finite_for_an_untrained_model(case: WorkloadCase) -> None:
    value = case.make().evaluate(case.model())
    expect(isinstance(value, float) and isfinite(value), "a finite number", repr(value))


def _cast(batch: tuple[Tensor, ...], dtype: torch.dtype) -> tuple[Tensor, ...]:
    return tuple(part.to(dtype) if part.is_floating_point() else part for part in batch)


def _gradients(model: nn.Module) -> dict[str, Tensor]:
    return {name: value.grad.clone() for name, value in model.named_parameters() if value.grad is not None}
