"""Gaussian noise: how large, how independent, and drawn as one `normal_` would."""

import pytest
import torch
from support.injecting import DTYPES, gradients, in_slots, layout_of, same_bits, strike
from torch import Tensor

from paftbench import specs
from paftbench.faults.injector import Injector
from paftbench.ranks.axis import Ranks

every_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=str)


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
    expected_N = torch.empty(size).normal_(
        generator=injector._active[0].draws.torch_generator("weight", torch.device("cpu"))
    )
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


def test_another_parameter_more_or_less_draws_nothing_anew() -> None:
    one = specs.fault("gaussian_noise", degree=0.5)
    shapes = {"first.weight": (40, 25), "first.bias": (13,), "second.weight": (3, 5, 7)}
    struck = {}
    for left_out in ("", "first.weight", "first.bias"):
        layout = layout_of(torch.float32, {name: shape for name, shape in shapes.items() if name != left_out})
        noise_N = strike([one], layout, torch.zeros((1, 1, layout.size))).after_TWN[0, 0]
        struck[left_out] = {slot.name: noise_N[slot.start : slot.stop] for slot in layout.slots}
    for left_out, noise in struck.items():
        assert set(noise) == set(shapes) - {left_out}
        assert all(same_bits(noise[name], struck[""][name]) for name in noise)


@pytest.mark.parametrize("unit", ["std", "rms"])
def test_neighbours_struck_together_each_get_a_normal_of_their_own(unit: str) -> None:
    sizes = [40_000, 30_000, 7, 65_541, 3, 16, 65_552, 1]
    layout = layout_of(torch.float32, {f"p{i}": (size,) for i, size in enumerate(sizes)})
    one = specs.fault("gaussian_noise", degree=0.5, unit=unit)
    ones = torch.ones((1, 1, layout.size))
    injector = Injector([one], layout, Ranks.virtual(1), seed=0)
    injector.begin(0)
    draws = injector._active[0].draws
    parts = []
    for slot in layout.slots:
        generator = draws.torch_generator(slot.name, torch.device("cpu"))
        parts.append(torch.empty(slot.stop - slot.start).normal_(generator=generator) * 0.5)
    struck = strike([one], layout, ones)
    assert same_bits(struck.after_TWN[0, 0], 1.0 + torch.cat(parts))
    (row,) = struck.rows
    assert row["norm"] == pytest.approx(float(torch.cat(parts).norm()), rel=1e-5)
    assert same_bits(struck.after_TWN, strike([one], layout, ones, cut=in_slots).after_TWN)


@every_dtype
def test_the_norm_that_is_logged_is_the_change_that_the_precision_kept(dtype: torch.dtype) -> None:
    layout = layout_of(dtype, {"weight": (5000,)})
    ones = torch.ones((1, 1, 5000), dtype=dtype)
    done = strike([specs.fault("gaussian_noise", degree=1e-3)], layout, ones)
    assert float((done.after_TWN.double() - 1).norm()) == pytest.approx(done.rows[0]["norm"], rel=1e-4)


def test_the_norm_that_is_logged_does_not_depend_on_how_buckets_cut() -> None:
    layout = layout_of(torch.float32, {"a": (300,), "b": (70_000,), "c": (7, 11), "d": (65_000,), "e": (5,)})
    one = specs.fault("gaussian_noise", degree=0.3, site="contribution")
    norms = set()
    for cut in ([(0, layout.size)], [(slot.start, slot.stop) for slot in reversed(layout.slots)]):
        injector = Injector([one], layout, Ranks.virtual(1), seed=0)
        grad_N = torch.ones(layout.size)
        injector.begin(0)
        for start, stop in cut:
            injector.strike(one.site, 0, [(start, grad_N[start:stop])])
        injector.end()
        norms.add(injector.drain()[0]["norm"])
    assert len(norms) == 1
