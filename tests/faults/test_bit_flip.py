"""Bit flips: which bits, how many, where."""

import numpy as np
import pytest
import torch
from support.injecting import DTYPES, Struck, gradients, layout_of, strike
from torch import Tensor

from paftbench import specs
from paftbench.bits import FORMATS, as_integers
from paftbench.faults.injector import Injector
from paftbench.ranks.axis import Ranks

every_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=str)


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
        flipped(10, dtype, degree=0.1, bits=bit)
