"""Where a fault model keeps what it remembers: in the state that `init` returns, and nowhere else."""

import io
from collections.abc import Mapping
from functools import cached_property
from types import FunctionType
from typing import Any

import torch
from torch import Tensor

from paftbench.faults.injector import Injector
from paftbench.verify.fault_case import WORLD, FaultCase
from paftbench.verify.promise import expect, promise
from paftbench.verify.striking import ranks_of, same_bits


@promise()
def its_state_is_tensors_with_a_leading_row_for_each_hosted_rank(case: FaultCase) -> None:
    for local in ([0], [1, 2], [0, 1, 2]):
        state = case.model().init(case.layout, ranks_of(WORLD, local))
        expect(isinstance(state, dict), "a dict of tensors from init()", f"a {type(state).__name__}")
        for name, value in state.items():
            expect(isinstance(value, Tensor), f"state {name!r} to be a tensor", f"a {type(value).__name__}")
            rows = value.shape[0] if value.ndim else 0
            expect(rows == len(local), f"{len(local)} leading rows in state {name!r}, one a hosted rank", rows)


@promise(every_dtype=True)
def it_resumes_from_a_checkpoint_bit_for_bit(case: FaultCase) -> None:
    grads_TWN = case.gradients(2 * case.steps)
    through = case.strike(grads_TWN=grads_TWN)
    begun = case.strike(grads_TWN=grads_TWN[: case.steps])
    kept = through_a_file(begun.injector.state_dict())
    case.strike(grads_TWN=case.gradients(seed=9))  # another trial in between, of the same model
    fresh = Injector([case.fault()], case.layout, ranks_of(WORLD), seed=0)
    fresh.load_state_dict(kept)
    rest = case.strike(grads_TWN=grads_TWN[case.steps :], first=case.steps, injector=fresh)
    same = same_bits(rest.after_TWN, through.after_TWN[case.steps :])
    expect(same, "a resumed trial to see the strikes of one that ran through", "other strikes after the checkpoint")


@promise()
def the_plugin_itself_holds_no_state(case: FaultCase) -> None:
    fault = case.fault()
    before = held(fault.model)
    case.strike(fault)
    after = held(fault.model)
    changed = sorted(name for name in {*before, *after} if before.get(name) != after.get(name))
    expect(not changed, "instance and class as they were before the strikes", f"{', '.join(changed)} changed")


def held(plugin: Any) -> Mapping[str, str]:
    """What an instance and its classes hold, as text; caches of what the fields say do not count."""
    found = {f"{type(plugin).__name__}.{name}": value for name, value in vars(plugin).items()}
    # Bases that are the contract hold nothing of the plugin's.
    for cls in type(plugin).__mro__:
        if "plugin_kind" not in vars(cls) and cls is not object:
            found |= {f"{cls.__name__}.{name}": value for name, value in vars(cls).items() if not _is_code(name, value)}
    members = [item for cls in type(plugin).__mro__ for item in vars(cls).items()]
    cached = {name for name, value in members if isinstance(value, cached_property)}
    # As text: a value that is changed in place would be equal to itself.
    return {name: repr(value) for name, value in found.items() if name.split(".")[1] not in cached}


def through_a_file(state: Any) -> Any:
    """State as it comes back from a checkpoint, which holds plain data only."""
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def _is_code(name: str, value: object) -> bool:
    return name.startswith("__") or isinstance(value, FunctionType | property | classmethod | staticmethod)
