"""What a fault model's `change` may touch, and what it returns. Shapes: K = strikes, N = elements."""

from typing import Any

import torch
from torch import Tensor

from paftbench.faults.changed import Changed
from paftbench.faults.cover import Cover
from paftbench.faults.draws import Draws
from paftbench.verify.fault_case import WORLD, FaultCase
from paftbench.verify.promise import NotTried, expect, promise
from paftbench.verify.striking import gradients, layout_of, same_bits, strike

STRUCK = 40


@promise(every_dtype=True)
def change_keeps_shape_dtype_and_device(case: FaultCase) -> None:
    for device in _devices():
        value = gradients(case.layout)[0, 0].to(device)
        returned, value = _changed(case, value)
        if isinstance(returned, Tensor):
            expect(returned.dtype == value.dtype, f"values of {value.dtype}", returned.dtype)
            expect(returned.shape == value.shape, f"values of shape {list(value.shape)}", list(returned.shape))
            expect(returned.device == value.device, f"values on {value.device}", returned.device)


@promise()
def change_returns_what_the_contract_says(case: FaultCase) -> None:
    returned, _ = _changed(case, gradients(case.layout)[0, 0])
    what, kind = ("what changed, a Changed", Changed) if case.dense else ("the new values, a tensor", Tensor)
    expect(isinstance(returned, kind), what, f"a {type(returned).__name__}")


@promise(every_dtype=True)
def a_sparse_change_leaves_its_input_as_it_is(case: FaultCase) -> None:
    if case.dense:
        raise NotTried("a dense fault changes its slice in place")
    value_K = gradients(case.layout)[0, 0][:STRUCK]
    before_K = value_K.clone()
    _changed(case, value_K)
    expect(same_bits(value_K, before_K), "the new values in a tensor of their own", "them in value_K itself")


@promise(every_dtype=True)
def gradients_that_are_not_finite_do_not_stop_it(case: FaultCase) -> None:
    grads_TWN = case.gradients()
    limits = torch.finfo(case.dtype)
    odd = [float("nan"), float("inf"), float("-inf"), 0.0, -0.0, limits.tiny, limits.max]
    for number, value in enumerate(odd):
        grads_TWN[..., number :: len(odd)] = value
    case.strike(grads_TWN=grads_TWN)


@promise()
def only_the_selected_parameters_and_ranks_are_struck(case: FaultCase) -> None:
    some = case.strike(case.fault(parameters=("first.weight", "second.*"), ranks=(1,)))
    names = {case.layout.at(int(index)).name for _, _, index in some.differs_TWN.nonzero()}
    ranks = {int(rank) for _, rank, _ in some.differs_TWN.nonzero()}
    outside = names - {"first.weight", "second.weight"}
    expect(not outside, "strikes on first.weight and second.weight only", f"changes to {', '.join(sorted(outside))}")
    expect(ranks <= {1}, "strikes on rank 1 only", f"changes to ranks {sorted(ranks)}")
    selected = [i for slot in case.layout.select(["first.weight", "second.*"]) for i in range(slot.start, slot.stop)]
    outside_N = torch.ones(case.layout.size, dtype=torch.bool)
    outside_N[selected] = False
    expect(not bool(some.differs_TWN[..., outside_N].any()), "no change outside the selection", "some")


@promise()
def a_gradient_of_one_element_is_enough(case: FaultCase) -> None:
    layout = layout_of(case.dtype, {"scale": (1,)})
    for degree in (case.degree, case.range[1]):
        grads_TWN = gradients(layout, steps=case.steps, world_size=WORLD)
        counts = strike([case.fault(degree)], layout, grads_TWN).injector.counts
        most = case.steps * WORLD
        expect(counts.drawn <= most, f"at most {most} strikes in {case.steps} steps of {WORLD} ranks", counts.drawn)


def _devices() -> list[torch.device]:
    return [torch.device(name) for name in ("cpu", "cuda") if name == "cpu" or torch.cuda.is_available()]


def _changed(case: FaultCase, value: Tensor) -> tuple[object, Tensor]:
    """What `change` returns for these values, and the values afterwards; state is as after the steps before."""
    model: Any = case.model()
    value = value.to(case.dtype)
    draws = Draws((0, "tried", 0, case.steps - 1, 0), step=case.steps - 1, rank=0, row=0, dtype=case.dtype)
    if not case.dense:
        return model.change(value, draws.among(value.numel(), slice(None))), value
    (state,) = case.strike().injector.states.values()
    (run,) = Cover.of(case.fault(), case.layout, 0).runs([(0, value)])
    return model.change(value, run.where, state, draws), value
