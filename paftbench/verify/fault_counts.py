"""How much a fault model strikes, and whether it says so truly. Shapes: T = steps, W = ranks, N = elements."""

import math

import numpy as np
import torch

from paftbench.faults.contract import FLOATS, SparseFault
from paftbench.faults.cover import Cover
from paftbench.verify.fault_case import DEGREES, WORLD, FaultCase
from paftbench.verify.promise import NotTried, expect, promise
from paftbench.verify.striking import layout_of

SAMPLES = 60  # steps over which a rate is measured
SIGMAS = 5.0
ROUNDING = 1e-5  # relative, of a norm whose changes are taken in float32
REACH = 0.5  # the share of strikes that must change a bit, of those that do in the dtype where most do


@promise()
def some_legal_degree_strikes_every_rank(case: FaultCase) -> None:
    expect(case.strength is not None, f"strikes on all ranks at one of the degrees {DEGREES} or {case.range[1]:g}", 0)


@promise(every_dtype=True)
def degree_zero_changes_no_bit(case: FaultCase) -> None:
    if case.range[0] > 0:
        raise NotTried(f"degree 0 is not legal in unit {case.unit}")
    grads_TWN = case.gradients(6)
    grads_TWN[:, :, 0], grads_TWN[:, :, 1], grads_TWN[:, :, 2] = float("nan"), float("-inf"), -0.0
    none = case.strike(case.fault(0.0), grads_TWN)
    changed = int(none.differs_TWN.sum())
    expect(changed == 0, "no changed bit at degree 0", f"{changed} changed elements")
    drawn = none.injector.counts.drawn
    expect(drawn == 0 and none.rows == [], "no strike at degree 0", f"{drawn} strikes drawn")


@promise(every_dtype=True)
def every_dtype_it_declares_is_really_struck(case: FaultCase) -> None:
    reach = {dtype: _reach(FaultCase(case.cls, case.unit, dtype, case.fields)) for dtype in case.cls.dtypes}
    best = max(reach, key=lambda dtype: reach[dtype])
    got = f"{reach[case.dtype]:.3g} of them in {case.dtype}, {reach[best]:.3g} in {best}"
    expect(reach[case.dtype] > 0, f"strikes that change {case.dtype} gradients", "none: the dtype is silently skipped")
    expect(reach[case.dtype] >= REACH * reach[best], "about as many strikes to change a bit in every dtype", got)


@promise()
def a_dtype_it_does_not_declare_is_refused(case: FaultCase) -> None:
    for dtype in sorted((FLOATS | {torch.int32}) - case.cls.dtypes, key=str):
        try:
            Cover.of(case.fault(), layout_of(dtype), 0)
        except ValueError as refused:
            expect(str(dtype) in str(refused), f"a refusal that names {dtype}", f"{refused}")
        else:
            expect(False, f"a refusal of {dtype}, which it does not declare", "none")


@promise(every_dtype=True)
def the_counts_it_reports_are_what_really_changed(case: FaultCase) -> None:
    base = case.strike()
    counts = base.injector.counts
    for step in range(len(base.before_TWN)):
        for rank in range(WORLD):
            rows = [row for row in base.rows if row["step"] == step and row["rank"] == rank and row["landed"]]
            dense = [row for row in rows if row["index"] is None]
            told = sum(row["elements"] for row in dense) if dense else sum(row["bit"] is not None for row in rows)
            really = int(base.differs_TWN[step, rank].sum())
            where = f"at step {step} on rank {rank}"
            expect(told == really, f"{really} elements reported {where}, the number really changed", told)
    expect(counts.drawn == counts.landed >= counts.changed, "every drawn strike to land", vars(counts))
    for row in base.rows:
        if row["norm"] is not None:
            at = row["step"], row["rank"]
            norm = float((base.after_TWN[at].double() - base.before_TWN[at].double()).norm())
            close = math.isclose(row["norm"], norm, rel_tol=ROUNDING)
            expect(close, f"the change's L2 norm, {norm:.6g}, reported", f"{row['norm']:.6g}")


@promise(every_dtype=True)
def as_many_strikes_are_drawn_as_expected_says(case: FaultCase) -> None:
    model, size = case.model(), case.layout.size
    steps = range(case.steps, case.steps + SAMPLES)
    drawn = np.array([[case.drawn(case.degree, step, rank) for rank in range(WORLD)] for step in steps], dtype=float)
    told = sum(model.expected(size, step, case.dtype) for step in steps) * WORLD
    expect(math.isfinite(told) and told > 0, "expected() to be a positive number where it strikes", told)
    binomial = type(model).count is SparseFault.count
    variance = told * max(0.0, 1 - told / (drawn.size * size)) if binomial else drawn.var() * drawn.size
    bound = SIGMAS * math.sqrt(max(variance, 1.0))
    expected = f"{told:.1f} +- {bound:.1f} strikes over {len(steps)} steps of {WORLD} ranks, as expected() says"
    expect(abs(drawn.sum() - told) <= bound, expected, f"{drawn.sum():.0f}")
    inside = 0 <= drawn.min() and drawn.max() <= size
    expect(inside, f"between 0 and {size} strikes on {size} elements", f"{drawn.min():.0f} to {drawn.max():.0f}")


@promise()
def both_ends_of_its_range_and_round_degrees_work(case: FaultCase) -> None:
    low, high = case.range
    for degree in dict.fromkeys([low, *(d for d in (0.1, 0.5, 1.0) if low <= d <= high), high]):
        case.strike(case.fault(degree))


def _reach(case: FaultCase) -> float:
    """The share of landed strikes that changed a bit."""
    counts = case.strike().injector.counts
    return counts.changed / max(1, counts.landed)
