"""What is promised of strikes at every site; what every fault model promises is in the contract suite."""

import pytest
from support.injecting import (
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
from paftbench.faults.fault import Fault

STEPS, WORLD = 3, 3
every_unit = pytest.mark.parametrize(("model", "unit"), UNITS)
every_site = pytest.mark.parametrize("site", SITES)


def fault(model: str, unit: str, **fields: object) -> Fault:
    return specs.fault(model, **{"unit": unit, "degree": 0.05, **fields})


def struck(fault_: Fault, **how: object) -> Struck:
    layout = layout_of()
    return strike([fault_], layout, gradients(layout, steps=STEPS, world_size=WORLD), **how)


@every_unit
@every_site
def test_strikes_at_a_site_depend_on_their_key_and_not_on_how_the_numbers_are_cut(
    model: str, unit: str, site: str
) -> None:
    one = fault(model, unit, site=site)
    base = struck(one)
    assert base.injector.counts.landed > 0
    for cut in (in_slots, in_buckets_backwards):
        other = struck(one, cut=cut)
        assert same_bits(base.after_TWN, other.after_TWN)
        assert base.injector.counts == other.injector.counts
        assert [row["index"] for row in base.rows] == [row["index"] for row in other.rows]
    for how in ({"seed": 1}, {"attempt": 1}, {"first": 7}):
        assert not same_bits(base.after_TWN[-1], struck(one, **how).after_TWN[-1])


@every_unit
@every_site
def test_strikes_at_a_site_do_not_depend_on_other_faults_there_or_on_who_hosts_the_rank(
    model: str, unit: str, site: str
) -> None:
    one = fault(model, unit, site=site, parameters="*.weight")
    base = struck(one)
    layout = layout_of()
    bystander = specs.fault("bit_flip", name="bystander", degree=0.5, parameters="*.bias", site=site)
    among = strike([bystander, one], layout, gradients(layout, steps=STEPS, world_size=WORLD))
    for slot in layout.select("*.weight"):
        here = slice(slot.start, slot.stop)
        assert same_bits(base.after_TWN[..., here].contiguous(), among.after_TWN[..., here].contiguous())
    for local in ([0], [1, 2]):
        split = struck(one, local=local)
        assert same_bits(base.after_TWN[:, local], split.after_TWN[:, local])
        assert repr(split.rows) == repr([row for row in base.rows if row["rank"] in local])


@every_unit
def test_an_unknown_unit_is_refused_with_the_known_ones(model: str, unit: str) -> None:
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
