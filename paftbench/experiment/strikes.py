"""How many strikes a trial is going to meet, in closed form: a forecast never walks the steps of a long trial."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from math import isfinite
from typing import Final

import torch

from paftbench.errors import Refused
from paftbench.faults.contract import FaultModel
from paftbench.faults.fault import Fault, RandomRanks
from paftbench.ranks.layout import Layout
from paftbench.ranks.sites import Site
from paftbench.records.trial import DTYPES, Trial
from paftbench.workloads.contract import Workload

WALKED: Final = 1024  # first steps, each looked at
LOOKS: Final = 64  # steps looked at beyond, spread evenly
MOST_LOOKS: Final = 2048  # to find where a model's expectation changes


@dataclass(frozen=True)
class ExpectedStrikes:
    """Over all faults, steps and ranks; not `exact` where a model changes too often to be looked at everywhere."""

    count: float
    exact: bool


@cache
def layout_of(workload: Workload) -> Layout:
    """The parameters of a workload's model, built without memory where the model allows it."""
    try:
        with torch.device("meta"):
            return Layout.of(workload.skeleton())
    except (RuntimeError, NotImplementedError):
        return Layout.of(workload.skeleton())


def expected_strikes(trial: Trial) -> float:
    """The count of `strikes_of`."""
    return strikes_of(trial).count


def strikes_of(trial: Trial) -> ExpectedStrikes:
    """What a resolved trial's faults strike; `ValueError` where a fault model cannot say what it expects.

    A model's `expected` may change with the step. Beyond the first steps it is taken for constant between two steps on
    which it agrees, and where it does not, the step of the change is searched.
    """
    found = [_of_fault(fault, trial.workload, trial.steps, trial.precision) for fault in trial.faults]
    counts = [
        one.count * _struck_ranks(fault, trial.world_size) * _spaces(fault, trial)
        for fault, one in zip(trial.faults, found, strict=True)
    ]
    return ExpectedStrikes(sum(counts), all(one.exact for one in found))


@cache
def _of_fault(fault: Fault, workload: Workload, steps: int, precision: str) -> ExpectedStrikes:
    """On one rank and in one space."""
    size = sum(slot.stop - slot.start for slot in layout_of(workload).select(fault.parameters))
    pieces = _Pieces(lambda step: _expected(fault.model, size, step, DTYPES[precision], fault.name), steps)
    count = sum(value * fault.schedule.count(start, stop) for start, stop, value in pieces)
    return ExpectedStrikes(count, pieces.exact)


class _Pieces:
    """Ranges of steps (start, stop, value) on which a function of the step is constant, as far as that can be told."""

    def __init__(self, at: Callable[[int], float], steps: int) -> None:
        self._at = at
        self._steps = steps
        self._left = MOST_LOOKS
        self.exact = True

    def __iter__(self) -> Iterator[tuple[int, int, float]]:
        steps, last = self._steps, self._steps - 1
        looks = {*range(min(WALKED, steps)), last}
        if steps > WALKED:
            looks |= {last * look // LOOKS for look in range(LOOKS)} | {2**i for i in range(last.bit_length())}
        known = [(step, self._at(step)) for step in sorted(looks)]
        stack = [*pairwise(known)][::-1]
        while stack:
            (start, value), (stop, other) = stack.pop()
            if value == other or stop - start == 1:
                yield start, stop, value
            elif self._left:
                self._left -= 1
                middle = (start + stop) // 2
                between = middle, self._at(middle)
                stack += [(between, (stop, other)), ((start, value), between)]
            else:
                self.exact = False
                yield start, stop, (value + other) / 2
        yield last, steps, known[-1][1]


def _expected(model: FaultModel, size: int, step: int, dtype: torch.dtype, name: str) -> float:
    try:
        value = float(model.expected(size, step, dtype))
    except Exception as error:
        raise Refused(f"fault {name!r}: {model.name}.expected() raised {type(error).__name__}: {error}") from error
    if not (isfinite(value) and value >= 0):
        raise Refused(f"fault {name!r}: {model.name}.expected() must be a finite number >= 0, got {value!r}")
    return value


def _spaces(fault: Fault, trial: Trial) -> int:
    """The flat spaces that a fault strikes at its site: each kind of optimizer state is one."""
    return len(trial.optimizer.state_kinds) if fault.site is Site.OPTIMIZER_STATE else 1


def _struck_ranks(fault: Fault, world_size: int) -> int:
    if isinstance(fault.ranks, RandomRanks):
        return fault.ranks.count
    return world_size if fault.ranks == "all" else len(fault.ranks)
