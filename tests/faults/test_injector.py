"""Strikes land, are counted and are logged; one that does not is an error."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest
import torch
from support.injecting import gradients, in_slots, layout_of, same_bits, strike
from torch import Tensor

from paftbench import specs
from paftbench.bits import as_hex
from paftbench.faults import Changed, DenseFault, Draws, Slice
from paftbench.faults import log as injection_log
from paftbench.faults.fault import Fault
from paftbench.faults.injector import InjectionError, Injector
from paftbench.ranks.axis import Ranks
from paftbench.ranks.sites import Site

KEYS = {
    "step", "attempt", "fault", "rank", "site", "parameter", "index", "landed", "bit", "bits_before", "bits_after",
    "value_before", "value_after", "norm", "elements",
}  # fmt: skip
MODELS = [("bit_flip", 0.1), ("gaussian_noise", 0.1), ("stale_shard", 1.0)]


@dataclass(frozen=True, kw_only=True)
class Double(DenseFault):
    """A dense fault of which nothing is drawn."""

    name = "double"
    units: ClassVar[Mapping[str, tuple[float, float]]] = {"on": (0.0, 1.0)}
    unit: str = "on"

    def change(self, grad_N: Tensor, where: Slice, state: dict[str, Tensor], draws: Draws) -> Changed:
        before_N = grad_N.clone()
        return Changed.between(before_N, grad_N.mul_(2.0), where)


def flips(degree: float = 0.1, **fields: object) -> Fault:
    return specs.fault("bit_flip", degree=degree, **fields)


def test_rows_have_exactly_the_keys_of_the_record_and_are_json() -> None:
    layout = layout_of()
    faults = [specs.fault(model, degree=degree, bits=3) if model == "bit_flip" else specs.fault(model, degree=degree)
              for model, degree in MODELS]  # fmt: skip
    rows = strike(faults, layout, gradients(layout, steps=2)).rows
    assert {row["fault"] for row in rows} == {"bit_flip", "gaussian_noise", "stale_shard"}
    assert all(set(row) == KEYS for row in rows)
    assert json.loads(json.dumps(rows)) == rows


def test_a_sparse_row_says_what_happened_to_which_element() -> None:
    layout = layout_of()
    one = strike([flips(name="flips", bits=12)], layout, gradients(layout, steps=2))
    assert len(one.rows) == one.injector.counts.landed > 0
    for row in one.rows:
        index = layout.by_name[row["parameter"]].start + row["index"]
        before = one.before_TWN[row["step"], row["rank"], index]
        after = one.after_TWN[row["step"], row["rank"], index]
        assert (row["fault"], row["attempt"], row["site"], row["landed"], row["bit"]) == (
            "flips",
            0,
            "result",
            True,
            12,
        )
        assert [row["bits_before"], row["bits_after"]] == as_hex(torch.stack([before, after]))
        assert (row["value_before"], row["value_after"]) == (float(before), float(after))
        assert row["norm"] is None and row["elements"] is None
        assert 0 <= row["index"] < layout.by_name[row["parameter"]].stop - layout.by_name[row["parameter"]].start


def test_a_dense_row_says_how_large_the_change_was() -> None:
    layout = layout_of()
    double = Fault(name="double", model=Double(degree=1.0), site=Site.RESULT, parameters="*.weight", ranks=(2,))
    grads = gradients(layout)
    one = strike([double], layout, grads, cut=in_slots)
    (row,) = one.rows
    covered = [slice(slot.start, slot.stop) for slot in layout.select("*.weight")]
    change = torch.cat([grads[0, 2, part].double() for part in covered])
    assert row["norm"] == pytest.approx(float(change.norm()), rel=1e-9)
    assert (row["elements"], row["index"], row["parameter"], row["rank"]) == (change.numel(), None, None, 2)
    counts = one.injector.counts
    assert counts.drawn == counts.landed == change.numel() == int(one.differs_TWN.sum())


@pytest.mark.parametrize(("model", "degree"), MODELS)
def test_strikes_on_a_parameter_that_no_rank_used_are_logged_as_not_landed(model: str, degree: float) -> None:
    layout = layout_of()
    unused = [layout.by_name["second.weight"]]
    only = specs.fault(model, degree=degree, parameters="second.weight")
    lost = strike([only], layout, gradients(layout, steps=2), unused=unused, cut=in_slots)
    counts = lost.injector.counts
    assert counts.drawn > 0 == counts.landed == counts.changed
    assert lost.rows and not any(row["landed"] for row in lost.rows)
    assert not bool(lost.differs_TWN.any())
    some = strike([specs.fault(model, degree=degree)], layout, gradients(layout, steps=2), unused=unused, cut=in_slots)
    assert some.injector.counts.landed > 0
    sparse = [row for row in some.rows if row["index"] is not None]
    assert all(row["landed"] == (row["parameter"] != "second.weight") for row in sparse)
    assert sum(row["landed"] for row in sparse) == (some.injector.counts.landed if sparse else 0)


@pytest.mark.parametrize(
    ("faults", "reason"),
    [
        ([{"ranks": [0, 2]}], "fault 'bit_flip': rank 2 is not below world_size 2"),
        ([{"ranks": {"random": 3}}], "fault 'bit_flip': 3 random ranks of 2"),
        ([{"degree": 0.1}, {"degree": 0.2}], "faults: the name 'bit_flip' is given twice"),
    ],
)
def test_ranks_that_do_not_exist_and_a_name_given_twice_are_refused(faults: list[dict[str, Any]], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        Injector([specs.fault("bit_flip", **fields) for fields in faults], layout_of(), Ranks.virtual(2), seed=0)


@pytest.mark.parametrize("model", ["bit_flip", "gaussian_noise"])
def test_strikes_on_zeros_that_a_bucket_carried_for_an_unused_parameter_did_not_land(model: str) -> None:
    layout = layout_of()
    grads = gradients(layout, world_size=1)
    faults = [specs.fault(model, degree=0.3)]
    separate = Injector(faults, layout, Ranks.virtual(1), seed=0, separate=True)
    whole = Injector(faults, layout, Ranks.virtual(1), seed=0, separate=True)
    unused = layout.by_name["second.weight"]
    for one, pieces in (
        (
            separate,
            [(slot.start, grads[0, 0].clone()[slot.start : slot.stop]) for slot in layout.slots if slot != unused],
        ),
        (whole, [(0, grads[0, 0].clone())]),
    ):
        one.begin(0)
        one.strike(Site.RESULT, 0, pieces)
        one.end([unused])
    assert separate.counts == whole.counts and separate.counts.landed < separate.counts.drawn


@pytest.mark.parametrize(("model", "degree"), MODELS[:2])
def test_a_piece_that_is_never_passed_is_an_error(model: str, degree: float) -> None:
    layout = layout_of()
    grad_N = gradients(layout, world_size=1)[0, 0]
    for unused in ([], [layout.by_name["first.bias"]]):
        one = Injector([specs.fault(model, degree=degree)], layout, Ranks.virtual(1), seed=0)
        one.begin(0)
        one.strike(Site.RESULT, 0, [(slot.start, grad_N[slot.start : slot.stop]) for slot in layout.slots[1:]])
        with pytest.raises(
            InjectionError, match=rf"fault '{model}' drew \d+ strikes at step 0 on rank 0, but \d+ landed"
        ):
            one.end(unused)


def test_a_piece_that_is_passed_twice_is_an_error() -> None:
    layout = layout_of()
    grad_N = gradients(layout, world_size=1)[0, 0]
    one = Injector([flips()], layout, Ranks.virtual(1), seed=0)
    one.begin(0)
    one.strike(Site.RESULT, 0, [(0, grad_N)])
    one.strike(Site.RESULT, 0, [(0, grad_N)])
    with pytest.raises(InjectionError, match="drew"):
        one.end()


def test_a_fault_strikes_at_its_site_only() -> None:
    layout = layout_of()
    one = Injector([flips(site="contribution")], layout, Ranks.virtual(1), seed=0)
    grad_N = gradients(layout, world_size=1)[0, 0]
    before_N = grad_N.clone()
    one.begin(0)
    one.strike(Site.RESULT, 0, [(0, grad_N)])
    assert same_bits(grad_N, before_N)
    one.strike(Site.CONTRIBUTION, 0, [(0, grad_N)])
    one.end()
    assert not same_bits(grad_N, before_N) and one.sites == {Site.CONTRIBUTION}


def test_faults_strike_in_the_order_of_their_list() -> None:
    layout = layout_of()
    double = Fault(name="double", model=Double(degree=1.0), site=Site.RESULT)
    sign = flips(1.0, bits="sign", unit="per_bit")
    grads = gradients(layout)
    assert same_bits(strike([double, sign], layout, grads).after_TWN, grads * -2)
    noise = specs.fault("gaussian_noise", degree=1.0)
    first, second = (strike(faults, layout, grads).after_TWN for faults in ([double, noise], [noise, double]))
    drawn = strike([noise], layout, torch.zeros_like(grads)).after_TWN
    assert torch.equal(first, grads * 2 + drawn) and torch.equal(second, (grads + drawn) * 2)


def test_past_the_cap_rows_stop_and_counts_go_on_exactly(monkeypatch: pytest.MonkeyPatch) -> None:
    layout = layout_of()
    grads = gradients(layout, steps=4)
    free = strike([flips()], layout, grads)
    monkeypatch.setattr(injection_log, "ROW_CAP", 150)
    capped = strike([flips()], layout, grads)
    assert len(free.rows) > 150 and repr(capped.rows) == repr(free.rows[:150])
    assert capped.injector.counts == free.injector.counts
    assert same_bits(capped.after_TWN, free.after_TWN)
    dense = strike([specs.fault("gaussian_noise", degree=0.1)], layout, gradients(layout, steps=50))
    assert len(dense.rows) == 150 and dense.injector.counts.drawn == 50 * 4 * layout.size
    resumed = Injector([flips()], layout, Ranks.virtual(4), seed=0)
    resumed.load_state_dict(capped.injector.state_dict())
    assert strike([flips()], layout, grads, first=4, injector=resumed).rows == []


def test_counts_go_on_after_a_resume() -> None:
    layout = layout_of()
    grads = gradients(layout, steps=6)
    through = strike([flips()], layout, grads)
    begun = strike([flips()], layout, grads[:2])
    resumed = Injector([flips()], layout, Ranks.virtual(4), seed=0)
    resumed.load_state_dict(begun.injector.state_dict())
    rest = strike([flips()], layout, grads[2:], first=2, injector=resumed)
    assert rest.injector.counts == through.injector.counts
    assert repr(begun.rows + rest.rows) == repr(through.rows)


def test_a_step_without_strikes_is_quiet() -> None:
    layout = layout_of()
    one = strike([flips(schedule={"kind": "steps", "steps": [1]})], layout, gradients(layout, steps=3))
    assert {row["step"] for row in one.rows} == {1}
    assert one.injector.drawn_now == 0 and one.injector.drain() == []
