"""What every registered fault model promises, in every unit, dtype and site."""

import random
import re

import numpy as np
import pytest
import torch
from injecting import (
    DTYPES,
    SHAPES,
    SITES,
    UNITS,
    Struck,
    gradients,
    in_buckets_backwards,
    in_slots,
    layout_of,
    same_bits,
    strike,
)

from paftbench import specs
from paftbench.faults import Fault

STEPS, WORLD = 3, 3
every_unit = pytest.mark.parametrize(("model", "unit"), UNITS)
every_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=str)
every_site = pytest.mark.parametrize("site", SITES)


def fault(model: str, unit: str, **fields: object) -> Fault:
    return specs.fault(model, **{"unit": unit, "degree": 0.05, **fields})


def struck(fault_: Fault, dtype: torch.dtype = torch.float32, **how: object) -> Struck:
    layout = layout_of(dtype)
    return strike([fault_], layout, gradients(layout, steps=STEPS, world_size=WORLD), **how)


@every_unit
@every_dtype
@every_site
def test_same_seed_same_strikes_and_another_key_others(model: str, unit: str, dtype: torch.dtype, site: str) -> None:
    one = fault(model, unit, site=site)
    base = struck(one, dtype)
    assert base.injector.counts.landed > 0
    again = struck(one, dtype)
    assert same_bits(base.after_TWN, again.after_TWN) and repr(base.rows) == repr(again.rows)
    others = [
        struck(one, dtype, seed=1),
        struck(fault(model, unit, site=site, name="other"), dtype),
        struck(one, dtype, attempt=1),
        struck(one, dtype, first=7),
    ]
    for other in others:
        assert not same_bits(base.after_TWN[-1], other.after_TWN[-1])
    ranks_WN = base.after_TWN[-1] - base.before_TWN[-1]
    assert not any(torch.equal(ranks_WN[0], ranks_WN[rank]) for rank in (1, 2))


@every_unit
@every_dtype
@every_site
def test_strikes_do_not_depend_on_how_the_gradient_is_cut(model: str, unit: str, dtype: torch.dtype, site: str) -> None:
    one = fault(model, unit, site=site)
    base = struck(one, dtype)
    for cut in (in_slots, in_buckets_backwards):
        other = struck(one, dtype, cut=cut)
        assert same_bits(base.after_TWN, other.after_TWN)
        assert base.injector.counts == other.injector.counts
        assert [row["index"] for row in base.rows] == [row["index"] for row in other.rows]


@every_unit
@every_site
def test_strikes_do_not_depend_on_other_faults_or_on_who_hosts_the_rank(model: str, unit: str, site: str) -> None:
    one = fault(model, unit, site=site, parameters="*.weight")
    base = struck(one)
    layout = layout_of()
    bystander = specs.fault("bit_flip", name="bystander", degree=0.5, parameters="*.bias", site=site)
    grads = gradients(layout, steps=STEPS, world_size=WORLD)
    among = strike([bystander, one], layout, grads)
    for slot in layout.select("*.weight"):
        here = slice(slot.start, slot.stop)
        assert same_bits(base.after_TWN[..., here].contiguous(), among.after_TWN[..., here].contiguous())
    for local in ([0], [1, 2]):
        split = struck(one, local=local)
        assert same_bits(base.after_TWN[:, local], split.after_TWN[:, local])
        assert repr(split.rows) == repr([row for row in base.rows if row["rank"] in local])


@every_unit
@every_dtype
@every_site
def test_strikes_keep_shape_type_and_random_states_and_count_what_changed(
    model: str, unit: str, dtype: torch.dtype, site: str
) -> None:
    torch.manual_seed(5)
    global_states = [torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate()]
    base = struck(fault(model, unit, site=site), dtype)
    assert torch.equal(global_states[0], torch.get_rng_state())
    assert global_states[1:] == [np.random.get_state()[1].tolist(), random.getstate()]
    torch.manual_seed(6)
    assert same_bits(base.after_TWN, struck(fault(model, unit, site=site), dtype).after_TWN)
    assert base.after_TWN.dtype == dtype and base.after_TWN.shape == base.before_TWN.shape
    counts = base.injector.counts
    assert counts.drawn == counts.landed >= counts.changed > 0
    changed = int(base.differs_TWN.sum())
    dense = [row for row in base.rows if row["index"] is None]
    assert changed == (sum(row["elements"] for row in dense) if dense else counts.changed)
    if dense:
        norms = {(row["step"], row["rank"]): row["norm"] for row in dense}
        delta_TWN = base.after_TWN.double() - base.before_TWN.double()
        tolerance = 1e-5 if dtype in (torch.float64, torch.float32) else 0.05
        for (step, rank), norm in norms.items():
            assert norm == pytest.approx(float(delta_TWN[step, rank].norm()), rel=tolerance)


@every_unit
@every_dtype
@every_site
def test_degree_zero_never_changes_a_bit(model: str, unit: str, dtype: torch.dtype, site: str) -> None:
    layout = layout_of(dtype)
    grads = gradients(layout, steps=6, world_size=2)
    grads[:, :, 0], grads[:, :, 1], grads[:, :, 2] = float("nan"), float("-inf"), -0.0
    none = strike([fault(model, unit, site=site, degree=0.0)], layout, grads)
    assert same_bits(none.after_TWN, grads)
    assert none.rows == [] and none.injector.counts.drawn == 0


@every_unit
def test_a_permanent_fault_strikes_a_repetition_the_same_and_a_transient_one_afresh(model: str, unit: str) -> None:
    permanent = fault(model, unit, persistence="permanent")
    assert same_bits(struck(permanent).after_TWN, struck(permanent, attempt=1).after_TWN)
    transient = fault(model, unit)
    first, second = struck(transient), struck(transient, attempt=1)
    assert not same_bits(first.after_TWN, second.after_TWN)
    assert {row["attempt"] for row in second.rows} == {1}


@every_unit
def test_only_the_selected_parameters_and_ranks_are_struck(model: str, unit: str) -> None:
    some = struck(fault(model, unit, parameters=["*.bias", "second.*"], ranks=[1], degree=0.9))
    names = {layout_of().at(int(index)).name for _, _, index in some.differs_TWN.nonzero()}
    assert names == {"first.bias", "second.weight"}
    assert {int(rank) for _, rank, _ in some.differs_TWN.nonzero()} == {1}


@every_unit
def test_a_degree_outside_the_legal_range_is_refused_with_the_range_and_the_value(model: str, unit: str) -> None:
    for degree in (-0.1, float("nan"), float("inf"), 2e30):
        expected = rf"degree \({unit}\) must be within \[0, \S+\], got {re.escape(repr(degree))}$"
        with pytest.raises(ValueError, match=expected):
            fault(model, unit, degree=degree)
    with pytest.raises(ValueError, match=f"unit 'perelement' is not one of {model}.*Known: .*{unit}"):
        fault(model, "perelement")


def test_the_tests_above_see_every_shape_of_parameter() -> None:
    assert {len(shape) for shape in SHAPES.values()} == {1, 2, 3}


@pytest.mark.parametrize(("model", "unit"), [row for row in UNITS if row[1] not in ("rms",)])
def test_selected_parameters_that_are_not_neighbours_are_covered_to_their_last_element(model: str, unit: str) -> None:
    layout = layout_of()
    selected = ["first.weight", "second.weight"]
    some = struck(fault(model, unit, parameters=selected, degree=1.0))
    covered = [i for slot in layout.select(selected) for i in range(slot.start, slot.stop)]
    assert some.differs_TWN[-1, 0].nonzero().flatten().tolist() == covered
