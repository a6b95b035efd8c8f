"""How a fault model is declared: its units and their ranges, its sites and dtypes."""

from dataclasses import fields

import torch

from paftbench.building import build
from paftbench.faults.contract import FLOATS
from paftbench.ranks.sites import Site
from paftbench.verify.declared import Declared
from paftbench.verify.promise import Broken, expect, promise


@promise()
def units_ranges_sites_and_dtypes_are_declared(case: Declared) -> None:
    units = getattr(case.cls, "units", None)
    expect(bool(units), "units, a mapping of unit to (lowest, highest) degree", units)
    cls = case.cls
    for unit, (low, high) in cls.units.items():
        expect(float("-inf") < low <= high < float("inf"), f"a finite range of degrees in unit {unit!r}", (low, high))
    default = next(field.default for field in fields(cls) if field.name == "unit")
    expect(default in cls.units, f"a default unit among {sorted(cls.units)}", repr(default))
    odd = [site for site in cls.sites if not isinstance(site, Site)]
    expect(isinstance(cls.sites, frozenset) and not odd, "sites as a frozenset of Site", cls.sites)
    types = isinstance(cls.dtypes, frozenset) and all(isinstance(dtype, torch.dtype) for dtype in cls.dtypes)
    expect(types and bool(cls.dtypes) and set(cls.dtypes) <= FLOATS, "dtypes, of fp64, fp32, bf16, fp16", cls.dtypes)


@promise()
def a_degree_outside_the_range_is_refused_with_the_range_and_the_value(case: Declared) -> None:
    cls = case.cls
    for unit, (low, high) in cls.units.items():
        for degree in (low - 0.5, 2 * high + 1, float("nan"), float("inf")):
            try:
                build(cls, {"unit": unit, "degree": degree}, cls.name)
            except ValueError as refused:
                told = f"[{low:g}, {high:g}]" in str(refused) and repr(degree) in str(refused)
                expect(told, f"a refusal that names [{low:g}, {high:g}] and {degree!r}", f"{refused}")
            else:
                raise Broken(f"expected degree {degree!r} in unit {unit!r} to be refused, got an instance")
