"""What every registered fault model promises, in every unit, dtype and site, and what each model is."""

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
from torch import Tensor

from paftbench import specs
from paftbench.bits import FORMATS, as_integers
from paftbench.faults import Fault
from paftbench.injector import Injector
from paftbench.ranks import Ranks

STEPS, WORLD = 3, 3
every_unit = pytest.mark.parametrize(("model", "unit"), UNITS)
every_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=str)
every_site = pytest.mark.parametrize("site", SITES)


def fault(model: str, unit: str, **fields: object) -> Fault:
    return specs.fault(model, **{"unit": unit, "degree": 0.05, **fields})


def struck(fault_: Fault, dtype: torch.dtype = torch.float32, **how: object) -> Struck:
    layout = layout_of(dtype)
    return strike([fault_], layout, gradients(layout, steps=STEPS, world_size=WORLD), **how)


# ---- every model --------------------------------------------------------------------------------------------------


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


# ---- bit_flip -----------------------------------------------------------------------------------------------------


def flipped(size: int, dtype: torch.dtype = torch.float32, std: float = 1.0, **fields: object) -> tuple[Struck, Tensor]:
    """One rank, one parameter of `size`: what was struck, and the flipped bits as integers [N]."""
    layout = layout_of(dtype, {"weight": (size,)})
    grads = gradients(layout, world_size=1) * std
    base = strike([specs.fault("bit_flip", **fields)], layout, grads)
    flips = as_integers(base.before_TWN) ^ as_integers(base.after_TWN)
    return base, flips[0, 0]


@pytest.mark.parametrize("rate", [0.0, 0.1, 0.5, 1.0])
def test_the_rate_of_struck_elements_is_the_degree(rate: float) -> None:
    size = 40_000
    base, flips_N = flipped(size, degree=rate)
    hit = int((flips_N != 0).sum())
    assert base.injector.counts.drawn == base.injector.counts.landed == base.injector.counts.changed == hit
    assert abs(hit - rate * size) <= 4 * (size * rate * (1 - rate)) ** 0.5
    indices = [row["index"] for row in base.rows]
    assert len(set(indices)) == len(indices) == hit


@every_dtype
@pytest.mark.parametrize("bits", ["any", "sign", "exponent", "mantissa", 0, 9])
@pytest.mark.parametrize("unit", ["per_element", "per_bit"])
def test_only_the_chosen_bits_flip(dtype: torch.dtype, bits: str | int, unit: str) -> None:
    form = FORMATS[dtype]
    allowed = [bits] if isinstance(bits, int) else list(form.bits_of(bits))
    base, flips_N = flipped(4_000, dtype, degree=0.3, unit=unit, bits=bits)
    mask = sum(1 << bit for bit in allowed)
    seen = {int(flip) & ((1 << form.width) - 1) for flip in flips_N} - {0}
    assert seen and all(flip & ~mask == 0 for flip in seen)
    assert {bit for flip in seen for bit in range(form.width) if flip >> bit & 1} == set(allowed)
    if unit == "per_element":
        assert all(flip.bit_count() == 1 for flip in seen)
    for row in base.rows[:50]:
        before, after = int(row["bits_before"], 16), int(row["bits_after"], 16)
        named = row["bit"] if isinstance(row["bit"], list) else [row["bit"]]
        assert before ^ after == sum(1 << bit for bit in named) != 0
        assert len(row["bits_before"]) == len(row["bits_after"]) == 2 + form.width // 4


@every_dtype
def test_each_bit_is_as_likely_as_any_other(dtype: torch.dtype) -> None:
    width = FORMATS[dtype].width
    _, flips_N = flipped(32_000, dtype, degree=1.0)
    counts = np.array([int((flips_N >> bit & 1).sum()) for bit in range(width)])
    expected = 32_000 / width
    assert ((counts - expected) ** 2 / expected).sum() < width - 1 + 5 * (2 * (width - 1)) ** 0.5


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("p", [0.002, 0.1, 0.7, 1.0])
def test_per_bit_flips_each_bit_with_that_probability_independently(dtype: torch.dtype, p: float) -> None:
    size, width = 30_000, FORMATS[dtype].width
    base, flips_N = flipped(size, dtype, degree=p, unit="per_bit")
    bits_bN = torch.stack([flips_N >> bit & 1 for bit in range(width)]).double()
    sigma = (size * p * (1 - p)) ** 0.5
    assert float((bits_bN.sum(1) - size * p).abs().max()) <= 4.5 * sigma
    any_of = 1 - (1 - p) ** width
    assert abs(base.injector.counts.drawn - size * any_of) <= 4 * (size * any_of * (1 - any_of)) ** 0.5
    assert base.injector.counts.changed == base.injector.counts.drawn == int((flips_N != 0).sum())
    if p < 1:
        pairs_bb = bits_bN @ bits_bN.T
        pairs_bb.fill_diagonal_(size * p * p)
        assert float((pairs_bb - size * p * p).abs().max()) <= 5.5 * max(1.0, size * p * p * (1 - p * p)) ** 0.5


@pytest.mark.parametrize(
    ("dtype", "share"), [(torch.float32, 0.0085), (torch.float16, 0.0170), (torch.bfloat16, 0.0171)], ids=str
)
def test_a_uniform_flip_makes_the_known_share_of_gradients_infinite_or_nan(dtype: torch.dtype, share: float) -> None:
    size = 400_000
    base, _ = flipped(size, dtype, degree=1.0)
    found = float((~torch.isfinite(base.after_TWN)).double().mean())
    assert found == pytest.approx(share, abs=5e-5 + 4 * (share / size) ** 0.5)
    small, _ = flipped(50_000, dtype, std=1e-3, degree=1.0)
    assert bool(torch.isfinite(small.after_TWN).all())


def test_positions_are_uniform_and_strikes_of_different_ranks_and_steps_are_unrelated() -> None:
    layout = layout_of(torch.float32, {"a": (500,), "b": (1500,)})
    grads = gradients(layout, steps=10, world_size=4)
    base = strike([specs.fault("bit_flip", degree=0.1)], layout, grads)
    hits_TWN = base.differs_TWN.double()
    per_tenth = hits_TWN.reshape(40, 20, 100).sum((0, 2))
    assert float(((per_tenth - per_tenth.mean()) ** 2 / (per_tenth.mean() * 0.9)).sum()) < 19 + 5 * 38**0.5
    rows_RN = hits_TWN.reshape(40, 2000) - 0.1
    correlation = (rows_RN @ rows_RN.T / (2000 * 0.09)).fill_diagonal_(0.0)
    assert float(correlation.abs().max()) < 5 / 2000**0.5


def test_the_input_of_a_flip_stays_as_it_is() -> None:
    value_K = torch.tensor([1.0, -2.0, 0.0])
    model = specs.fault("bit_flip", degree=1.0).model
    layout = layout_of(torch.float32, {"weight": (3,)})
    injector = Injector([specs.fault("bit_flip", degree=1.0)], layout, Ranks.virtual(1), seed=0)
    injector.begin(0)
    draws = injector._active[0].draws.among(3, np.arange(3))
    after_K = model.change(value_K, draws)
    assert value_K.tolist() == [1.0, -2.0, 0.0] and after_K.data_ptr() != value_K.data_ptr()


@pytest.mark.parametrize("bits", [-1, 64, "mantisa", 1.5])
def test_bits_that_mean_nothing_are_refused_with_the_value(bits: object) -> None:
    with pytest.raises(ValueError, match="bits"):
        specs.fault("bit_flip", degree=0.1, bits=bits)


@pytest.mark.parametrize(("dtype", "bit"), [(torch.float32, 32), (torch.float16, 16), (torch.bfloat16, 63)], ids=str)
def test_a_bit_that_the_dtype_has_not_is_refused(dtype: torch.dtype, bit: int) -> None:
    with pytest.raises(ValueError, match=rf"bits \(a bit's number\): {dtype} has bits 0 to .*, got {bit}"):
        struck(specs.fault("bit_flip", degree=0.1, bits=bit), dtype)


# ---- gaussian_noise -----------------------------------------------------------------------------------------------


def noise(
    size: int, *, steps: int = 1, world_size: int = 1, dtype: torch.dtype = torch.float32, **fields: object
) -> Tensor:
    """Noise alone [T, W, N], on gradients of zero."""
    layout = layout_of(dtype, {"a": (size // 2,), "b": (size - size // 2,)})
    zeros = torch.zeros((steps, world_size, size), dtype=dtype)
    return strike([specs.fault("gaussian_noise", **fields)], layout, zeros).after_TWN


@every_dtype
def test_noise_has_mean_zero_and_the_degree_as_its_standard_deviation(dtype: torch.dtype) -> None:
    noise_N = noise(400_000, dtype=dtype, degree=0.03)[0, 0].double() / 0.03
    assert abs(float(noise_N.mean())) < 4 / 400_000**0.5
    assert float(noise_N.std()) == pytest.approx(1.0, abs=4 / 800_000**0.5)
    assert float((noise_N**4).mean()) == pytest.approx(3.0, rel=0.03)
    assert float((noise_N.abs() < 1).double().mean()) == pytest.approx(0.6827, abs=0.003)


def test_noise_is_independent_over_ranks_steps_and_parameters() -> None:
    noise_TWN = noise(40_000, steps=3, world_size=3, degree=1.0)
    rows_RN = noise_TWN.reshape(9, 2, 20_000).reshape(18, 20_000)
    correlation = (rows_RN @ rows_RN.T / 20_000).fill_diagonal_(0.0)
    assert float(correlation.abs().max()) < 4.5 / 20_000**0.5


@pytest.mark.parametrize("size", [1, 15, 16, 1000, 65_536, 65_537, 65_551, 65_552, 131_079, 200_001])
def test_noise_drawn_in_chunks_is_one_whole_normal(size: int) -> None:
    layout = layout_of(torch.float32, {"weight": (size,)})
    one = specs.fault("gaussian_noise", degree=0.5)
    injector = Injector([one], layout, Ranks.virtual(1), seed=0)
    injector.begin(0)
    expected_N = torch.empty(size).normal_(generator=injector._active[0].draws.torch_generator(0, torch.device("cpu")))
    struck_TWN = strike([one], layout, torch.zeros((1, 1, size))).after_TWN
    assert same_bits(struck_TWN[0, 0], expected_N * 0.5)


def test_noise_in_rms_is_a_multiple_of_each_parameters_own_gradient() -> None:
    layout = layout_of(torch.float32, {"small": (50_000,), "large": (50_000,), "zero": (100,)})
    grads = gradients(layout, world_size=1)
    grads[..., :50_000] *= 1e-3
    grads[..., 50_000:100_000] *= 1e3
    grads[..., 100_000:] = 0.0
    base = strike([specs.fault("gaussian_noise", degree=0.2, unit="rms")], layout, grads)
    delta_N = (base.after_TWN - grads)[0, 0]
    assert float(delta_N[:50_000].std()) == pytest.approx(0.2e-3, rel=0.02)
    assert float(delta_N[50_000:100_000].std()) == pytest.approx(0.2e3, rel=0.02)
    assert bool((delta_N[100_000:] == 0).all())
    counts = base.injector.counts
    assert (counts.drawn, counts.landed, counts.changed) == (100_100, 100_100, int(base.differs_TWN.sum()))


def test_noise_too_small_for_the_dtype_lands_and_is_not_counted_as_a_change() -> None:
    layout = layout_of(torch.bfloat16)
    base = strike([specs.fault("gaussian_noise", degree=1e-6)], layout, torch.ones((1, 2, layout.size)).bfloat16())
    counts = base.injector.counts
    assert counts.landed == 2 * layout.size and counts.changed == 0 == int(base.differs_TWN.sum())


# ---- stale_shard --------------------------------------------------------------------------------------------------


@every_dtype
@every_site
@pytest.mark.parametrize("delay", [1, 3])
@pytest.mark.parametrize("fraction", [0.1, 1.0])
def test_a_stale_shard_keeps_the_value_of_some_steps_ago(
    dtype: torch.dtype, site: str, delay: int, fraction: float
) -> None:
    layout = layout_of(dtype)
    grads = gradients(layout, steps=8, world_size=2)
    base = strike([specs.fault("stale_shard", degree=fraction, delay=delay, site=site)], layout, grads)
    length = round(fraction * layout.size)
    for step in range(8):
        for rank in range(2):
            places = base.differs_TWN[step, rank].nonzero().flatten()
            if step < delay:
                assert len(places) == 0
                continue
            low, high = int(places[0]), int(places[-1]) + 1
            assert length - 4 <= high - low <= length
            assert same_bits(base.after_TWN[step, rank, low:high], grads[step - delay, rank, low:high])
    assert [row["step"] for row in base.rows] == [step for step in range(delay, 8) for _ in range(2)]
    assert base.injector.counts.drawn == base.injector.counts.changed == 2 * (8 - delay)


def test_a_stale_shard_that_strikes_one_random_rank_knows_the_past_of_all() -> None:
    layout = layout_of()
    grads = gradients(layout, steps=12, world_size=4)
    base = strike([specs.fault("stale_shard", degree=1.0, ranks={"random": 1})], layout, grads)
    struck_ranks = [row["rank"] for row in base.rows]
    assert len(struck_ranks) == 11 and len(set(struck_ranks)) > 1
    for row in base.rows:
        step, rank = row["step"], row["rank"]
        assert same_bits(base.after_TWN[step, rank], grads[step - 1, rank])
        others = [other for other in range(4) if other != rank]
        assert same_bits(base.after_TWN[step, others], grads[step, others])


@every_site
def test_a_stale_shard_goes_on_after_a_resume_as_if_never_interrupted(site: str) -> None:
    layout = layout_of()
    grads = gradients(layout, steps=9, world_size=2)
    one = specs.fault("stale_shard", degree=0.4, delay=3, site=site, schedule={"kind": "probability", "p": 0.7})
    through = strike([one], layout, grads)
    begun = strike([one], layout, grads[:5])
    resumed = Injector([one], layout, Ranks.virtual(2), seed=0)
    resumed.load_state_dict(begun.injector.state_dict())
    rest = strike([one], layout, grads[5:], first=5, injector=resumed)
    assert same_bits(through.after_TWN, torch.cat([begun.after_TWN, rest.after_TWN]))
    assert through.rows == begun.rows + rest.rows
    assert through.injector.counts == rest.injector.counts


def test_a_shard_stays_inside_the_selected_parameters() -> None:
    layout = layout_of()
    grads = gradients(layout, steps=2, world_size=1)
    base = strike([specs.fault("stale_shard", degree=1.0, parameters=["first.bias", "last.*"])], layout, grads)
    covered = [index for slot in layout.select(["first.bias", "last.*"]) for index in range(slot.start, slot.stop)]
    assert base.differs_TWN[1, 0].nonzero().flatten().tolist() == covered
    assert same_bits(base.after_TWN[1, 0, covered], grads[0, 0, covered])


def test_a_parameter_that_no_rank_used_has_a_past_of_zeros() -> None:
    layout = layout_of()
    bias = layout.by_name["first.bias"]
    here = slice(bias.start, bias.stop)
    one = specs.fault("stale_shard", degree=1.0)
    grads = gradients(layout, steps=4, world_size=1)
    injector = strike([one], layout, grads[:2]).injector
    strike([one], layout, grads[2:3], first=2, injector=injector, unused=[bias])
    last = strike([one], layout, grads[3:], first=3, injector=injector)
    assert bool((last.after_TWN[0, 0, here] == 0).all())
    assert same_bits(last.after_TWN[0, 0, : bias.start], grads[2, 0, : bias.start])


def test_a_delay_below_one_step_is_refused() -> None:
    with pytest.raises(ValueError, match=r"delay \(how many steps old the shard is\) must be >= 1, got 0"):
        specs.fault("stale_shard", degree=0.1, delay=0)


def test_the_tests_above_see_every_shape_of_parameter() -> None:
    assert {len(shape) for shape in SHAPES.values()} == {1, 2, 3}
