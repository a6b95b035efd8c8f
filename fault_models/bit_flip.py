"""Bit flips: one bit, or each bit on its own, of a floating-point number."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from paftbench.bits import FORMATS, as_integers
from paftbench.errors import Refused
from paftbench.faults import Draws, SparseFault

INTEGERS = {64: np.int64, 32: np.int32, 16: np.int16}


@dataclass(frozen=True, kw_only=True)
class BitFlip(SparseFault):
    """Flip bits of struck elements.

    `per_element`: an element is struck with probability `degree` and one of the chosen bits flips. `per_bit`: each
    chosen bit of each element flips with probability `degree`, so an element may lose several at once. `bits`: any,
    sign, exponent, mantissa, or a bit's number counted from the least significant (LSB = 0).
    """

    name = "bit_flip"
    units: ClassVar[Mapping[str, tuple[float, float]]] = {"per_element": (0.0, 1.0), "per_bit": (0.0, 1.0)}

    unit: str = "per_element"
    bits: str | int = "any"

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.bits, int) and not isinstance(self.bits, bool):
            if not 0 <= self.bits < 64:
                raise Refused(f"bits (a bit's number, LSB = 0) must be within [0, 64), got {self.bits}")
        elif self.bits not in ("any", "sign", "exponent", "mantissa"):
            raise Refused(f"bits must be any, sign, exponent, mantissa or a bit's number, got {self.bits!r}")

    def chosen(self, dtype: torch.dtype) -> range:
        """The bits that may flip in a number of this type; `ValueError` for a bit it has not."""
        if isinstance(self.bits, str):
            return FORMATS[dtype].bits_of(self.bits)
        if self.bits >= FORMATS[dtype].width:
            raise Refused(f"bits (a bit's number): {dtype} has bits 0 to {FORMATS[dtype].width - 1}, got {self.bits}")
        return range(self.bits, self.bits + 1)

    def check(self, dtype: torch.dtype) -> None:
        self.chosen(dtype)

    def rate(self, dtype: torch.dtype) -> float:
        if self.unit == "per_element":
            return self.degree
        return self._any_of(len(self.chosen(dtype)))

    def change(self, value_K: Tensor, draws: Draws) -> Tensor:
        form = FORMATS[value_K.dtype]
        bits = self.chosen(value_K.dtype)
        if self.unit == "per_element":
            mask_K = np.left_shift(1, draws.integers(bits.start, bits.stop))
        else:
            mask_K = self._some_bits(bits, draws).view(np.int64)
        # Masks are 64 bits wide; narrowing keeps the lowest, and bit 15, 31 or 63 is then the sign of a signed integer.
        narrow = mask_K.astype(INTEGERS[form.width], copy=False)
        mask = torch.from_numpy(narrow).to(value_K.device)
        return torch.bitwise_xor(as_integers(value_K), mask).view(value_K.dtype)

    def _some_bits(self, bits: range, draws: Draws) -> NDArray[np.uint64]:
        """Masks of independently flipped bits, given that at least one flips, for that is what a strike is."""
        width = len(bits)
        uniform_Kb = draws.uniform(1 + width)
        column_b = np.arange(width)
        # The first flipped bit is geometric, cut off at the width: P(first <= j) = (1 - (1 - p)^(j+1)) / P(any). It is
        # drawn by inversion from the first column. Bits behind it are free and flip with p, by a column each.
        first_K = np.zeros(len(uniform_Kb), dtype=np.int64)
        if self.degree < 1:
            first_K = (np.log1p(-uniform_Kb[:, 0] * self._any_of(width)) / np.log1p(-self.degree)).astype(np.int64)
        first_K1 = np.minimum(first_K, width - 1)[:, None]  # rounding may step over the end
        flips_Kb = (column_b == first_K1) | ((column_b > first_K1) & (uniform_Kb[:, 1:] < self.degree))
        weights_b = np.left_shift(np.uint64(1), (bits.start + column_b).astype(np.uint64))
        return (flips_Kb * weights_b).sum(axis=1, dtype=np.uint64)

    def _any_of(self, width: int) -> float:
        """Probability that at least one of `width` bits flips."""
        return float(-np.expm1(width * np.log1p(-self.degree))) if self.degree < 1 else 1.0
