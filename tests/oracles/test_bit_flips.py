"""Flips against values computed elsewhere, and every flip of every 16-bit number against integer xor."""

import csv
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from paftbench import specs
from paftbench.bits import FORMATS, as_hex, as_integers
from paftbench.faults import SparseFault
from paftbench.faults.draws import Draws

ORACLE = Path(__file__).parent / "data" / "bitflip_oracle.csv"
NAMES = {"fp64": torch.float64, "fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
NARROW = [torch.float16, torch.bfloat16]


def rows_of(name: str) -> list[dict[str, str]]:
    with ORACLE.open(newline="") as file:
        return [row for row in csv.DictReader(file) if row["format"] == name]


def values_of(patterns: list[int], dtype: torch.dtype) -> Tensor:
    form = FORMATS[dtype]
    signed = [bits - (1 << form.width) if bits >> (form.width - 1) else bits for bits in patterns]
    return torch.tensor(signed, dtype=form.integer).view(dtype)


def flip(value_K: Tensor, bits: int | str, unit: str = "per_element", degree: float = 1.0) -> Tensor:
    """`value_K` as the fault model changes it."""
    model = specs.fault("bit_flip", degree=degree, bits=bits, unit=unit).model
    assert isinstance(model, SparseFault)
    draws = Draws((0, "oracle"), step=0, rank=0, row=0, dtype=value_K.dtype)
    return model.change(value_K, draws.among(len(value_K), np.arange(len(value_K))))


@pytest.mark.parametrize(("name", "count"), [("fp64", 704), ("fp32", 352), ("fp16", 176), ("bf16", 176)])
def test_every_row_of_the_oracle(name: str, count: int) -> None:
    dtype, by_bit = NAMES[name], defaultdict(list)
    for row in rows_of(name):
        by_bit[int(row["bit_lsb0"])].append(row)
    assert sum(map(len, by_bit.values())) == count and sorted(by_bit) == list(range(FORMATS[dtype].width))
    for bit, rows in by_bit.items():
        before_K = values_of([int(row["bits_before"], 16) for row in rows], dtype)
        after_K = flip(before_K, bit)
        assert as_hex(before_K) == [row["bits_before"] for row in rows]
        assert as_hex(after_K) == [row["bits_after"] for row in rows]
        for column, found_K in (("value_before", before_K), ("value_after", after_K)):
            expected_K = torch.tensor([float.fromhex(row[column]) for row in rows], dtype=torch.float64)
            assert torch.equal(found_K.double().nan_to_num(7.0), expected_K.nan_to_num(7.0))
            assert torch.equal(torch.signbit(found_K.double()), torch.signbit(expected_K)) or found_K.isnan().any()
        assert all(bit in FORMATS[dtype].bits_of(row["bit_class"]) for row in rows)


@pytest.mark.parametrize("dtype", NARROW, ids=str)
def test_every_flip_of_every_16_bit_number_is_an_exclusive_or(dtype: torch.dtype) -> None:
    patterns = np.arange(1 << 16)
    value_K = values_of(patterns.tolist(), dtype)
    for bit in range(16):
        found = as_integers(flip(value_K, bit)).numpy().astype(np.int64) & 0xFFFF
        assert np.array_equal(found, patterns ^ (1 << bit))
        assert torch.equal(as_integers(flip(flip(value_K, bit), bit)), as_integers(value_K))


@pytest.mark.parametrize("dtype", NARROW, ids=str)
@pytest.mark.parametrize("unit", ["per_element", "per_bit"])
@pytest.mark.parametrize("kind", ["sign", "exponent", "mantissa", "any"])
def test_a_kind_of_bits_flips_in_every_16_bit_number_and_nothing_else(dtype: torch.dtype, unit: str, kind: str) -> None:
    patterns = np.arange(1 << 16)
    found = as_integers(flip(values_of(patterns.tolist(), dtype), kind, unit, 0.3)).numpy().astype(np.int64) & 0xFFFF
    flipped = found ^ patterns
    allowed = sum(1 << bit for bit in FORMATS[dtype].bits_of(kind))
    assert bool((flipped != 0).all()) and bool((flipped & ~allowed == 0).all())
    assert int(np.bitwise_or.reduce(flipped)) == allowed


def test_flips_of_one_are_the_known_powers_of_two() -> None:
    known = {
        torch.float32: {0: 1 + 2**-23, 22: 1.5, 23: 0.5, 24: 2**-2, 25: 2**-4, 28: 2**-32, 29: 2**-64, 31: -1.0},
        torch.bfloat16: {0: 1 + 2**-7, 6: 1.5, 7: 0.5, 13: 2**-64, 14: float("inf"), 15: -1.0},
        torch.float16: {0: 1 + 2**-10, 9: 1.5, 10: 0.5, 13: 2**-8, 14: float("inf"), 15: -1.0},
    }
    for dtype, flips in known.items():
        for bit, expected in flips.items():
            assert flip(torch.ones(1, dtype=dtype), bit).item() == expected


def test_flips_of_half_precision_zero_are_its_subnormals_and_powers() -> None:
    expected = [2.0**power for power in [*range(-24, -13), -13, -11, -7, 1]] + [-0.0]
    found = [flip(torch.zeros(1, dtype=torch.float16), bit).item() for bit in range(16)]
    assert found == expected and str(found[15]) == "-0.0"
