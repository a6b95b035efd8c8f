"""Trying every promise on a plugin."""

import inspect
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from paftbench.verify import (
    declared,
    fault_counts,
    fault_declared,
    fault_keys,
    fault_memory,
    fault_processes,
    fault_sites,
    fault_values,
    mitigation_processes,
    mitigation_rules,
    mitigation_state,
    mitigation_training,
    workload_data,
    workload_training,
)
from paftbench.verify.declared import Declared
from paftbench.verify.fault_case import ORDER, FaultCase, fault_cases
from paftbench.verify.mitigation_case import mitigation_cases
from paftbench.verify.promise import Broken, NotTried, Promise, promises_of
from paftbench.verify.workload_case import WorkloadCase

Begin = Callable[[Promise], None]

QUICK_DTYPES = 2  # of those that a fault model declares

DECLARATIONS = {
    "fault_models": promises_of(declared, fault_declared),
    "mitigations": promises_of(declared),
    "workloads": promises_of(declared),
}
BEHAVIOUR = {
    "fault_models": promises_of(fault_counts, fault_keys, fault_values, fault_memory, fault_sites, fault_processes),
    "mitigations": promises_of(mitigation_training, mitigation_rules, mitigation_state, mitigation_processes),
    "workloads": promises_of(workload_data, workload_training),
}


@dataclass(frozen=True, kw_only=True)
class PromiseResult:
    """What came of a promise: in how many cases it was tried, in which it is broken, why it was not tried at all."""

    promise: Promise
    tried: int
    broken: list[tuple[str, str]] = field(default_factory=list)
    reason: str = ""

    @property
    def state(self) -> str:
        """`holds`, `BROKEN` or `-`, for one that was not tried."""
        return "BROKEN" if self.broken else "holds" if self.tried else "-"


def findings(cls: Any, *, fast: bool = False, begin: Begin = lambda promise: None) -> Iterator[PromiseResult]:
    """Every promise of the class's kind, one after another; `begin` hears of each before it is tried.

    How the class behaves is only tried where it is declared so that instances can be made. `fast`: only the defaults
    of its fields, two dtypes, and no training in several processes.
    """
    broken = False
    for found in tried(cls, DECLARATIONS[cls.plugin_kind], fast=fast, begin=begin):
        broken = broken or bool(found.broken)
        yield found
    try:
        cases = list(_cases(cls, fast))
    except (Exception, SystemExit):
        if not broken:
            raise
        return
    # Starting a process takes seconds: it goes on while the other promises are tried.
    if cases and isinstance(cases[0], FaultCase):
        fault_processes.twin(cls, cases[0].dtype)
    yield from tried(cls, BEHAVIOUR[cls.plugin_kind], fast=fast, begin=begin)


def tried(
    cls: Any, promises: Sequence[Promise], *, fast: bool, begin: Begin = lambda promise: None
) -> Iterator[PromiseResult]:
    """Some promises on a class."""
    cases: list[Any] = []
    for promise in promises:
        if fast and promise.slow:
            continue
        begin(promise)
        if promise in DECLARATIONS[cls.plugin_kind]:
            yield _tried(promise, [Declared(cls)])
        else:
            # Made once, because a case keeps what it found: the degree at which it strikes, the ranks it needs.
            cases = cases or list(_cases(cls, fast))
            yield _tried(promise, [case for case in cases if promise.every_dtype or _is_first(case, cases)])


def _cases(cls: Any, fast: bool) -> Iterable[Any]:
    if cls.plugin_kind == "workloads":
        return [WorkloadCase(cls)]
    if cls.plugin_kind == "mitigations":
        return [case for case in mitigation_cases(cls) if not (fast and case.fields)]
    dtypes: Sequence[torch.dtype] = [dtype for dtype in ORDER if dtype in cls.dtypes]
    dtypes = dtypes[:QUICK_DTYPES] if fast else dtypes
    return [case for case in fault_cases(cls, dtypes) if not (fast and case.fields)]


def _is_first(case: Any, cases: Sequence[Any]) -> bool:
    """Whether a fault model's case is in the first dtype that is tried."""
    return not isinstance(case, FaultCase) or case.dtype == cases[0].dtype


def _tried(promise: Promise, cases: Iterable[Any]) -> PromiseResult:
    tried, broken, reason = 0, [], ""
    for case in cases:
        try:
            promise.keep(case)
        except NotTried as skipped:
            reason = str(skipped)
            continue
        except Broken as told:
            broken.append((case.label, str(told)))
        except (Exception, SystemExit) as error:  # an exit of the plugin's would pass for verify's own
            broken.append((case.label, f"expected no error, got {_told(error, case.cls)}"))
        tried += 1
    return PromiseResult(promise=promise, tried=tried, broken=broken, reason=reason)


def _told(error: BaseException, cls: Any) -> str:
    """An error in one line, with the last line of the plugin's file that it passed."""
    text = " ".join(f"{type(error).__name__}: {error}".split())
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if frame.filename == inspect.getfile(cls)]
    last = (own or frames)[-1]
    return f"{text} ({Path(last.filename).name}, line {last.lineno})"
