"""Sums hang on the values alone."""

import os
import subprocess
import sys
from math import fsum, inf

import numpy as np
import pytest
import torch
from torch import Tensor

from paftbench import sums

SIZES = [1, 7, 4096, 65_535, 65_536, 65_537, 150_001]


def values(size: int, seed: int = 0) -> Tensor:
    """Numbers of many magnitudes, so that another order is another sum; themselves the same on every processor."""
    generator = np.random.default_rng(seed)
    mantissas, exponents = generator.integers(-(1 << 24), 1 << 24, size), generator.integers(-44, -4, size)
    return torch.from_numpy(np.ldexp(mantissas.astype(np.float64), exponents)).float()


@pytest.mark.parametrize("size", SIZES)
def test_a_norm_is_the_same_wherever_the_values_lie(size: int) -> None:
    x_N = values(size)
    expected = sums.norms([x_N[None]])
    for offset in range(16):
        room = torch.full((size + 16,), 3.0)
        view = room[offset : offset + size].copy_(x_N)
        assert sums.norms([view[None]]) == expected
    rows_LN = torch.stack([values(size, seed=1), x_N, values(size, seed=2)])
    assert sums.norms([rows_LN])[1] == expected[0]


@pytest.mark.parametrize("size", SIZES[1:])
def test_a_norm_is_the_same_however_the_values_are_cut_into_blocks(size: int) -> None:
    x_LN = torch.stack([values(size), values(size, seed=1)])
    expected = sums.norms([x_LN])
    for parts in ([1], [3, size // 2], [size // 3, 0, size // 3]):
        cut = [*parts, size - sum(parts)]
        assert sums.norms([part.clone() for part in x_LN.split(cut, dim=1)]) == expected


def test_a_norm_is_right() -> None:
    x_N = values(100_000)
    assert sums.norms([x_N[None]])[0] == pytest.approx(fsum(v * v for v in x_N.double().tolist()) ** 0.5, rel=1e-13)
    assert sums.squares_by_part(x_N, [10, 0, 99_990])[:2] == [pytest.approx(float(x_N[:10].double().norm()) ** 2), 0.0]
    assert sums.norms([]) == []


def test_what_leaves_a_floats_range_is_infinite() -> None:
    big = torch.full((1, 3), 1e200, dtype=torch.float64)
    assert sums.squares(sums.chunks([big])) == [inf]
    assert sums.total([1.7e308, 1.7e308]) == inf
    assert sums.total([inf, 1.0]) == inf
    assert sums.total([float("nan")]) != sums.total([float("nan")])


PROGRAM = """
from test_sums import values
from paftbench import sums
print([sums.norms([values(size)[None]])[0].hex() for size in (7, 4096, 150_001)])
"""


@pytest.mark.parametrize("capability", ["default", "avx2"])
def test_a_norm_is_the_same_whatever_instructions_the_processor_has(capability: str) -> None:
    environment = {**os.environ, "ATEN_CPU_CAPABILITY": capability, "PYTHONPATH": os.pathsep.join(sys.path)}
    told = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=True)
    expected = [sums.norms([values(size)[None]])[0].hex() for size in (7, 4096, 150_001)]
    assert told.stdout.strip() == str(expected)
