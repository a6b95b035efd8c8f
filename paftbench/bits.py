"""Floating-point numbers as bits. Bits are numbered from the least significant, LSB = 0."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Format:
    """An IEEE-754-like layout: `width` bits, of which the low `mantissa` and the top one (sign) are not exponent."""

    integer: torch.dtype
    width: int
    mantissa: int

    def bits_of(self, kind: str) -> range:
        """The bits that `any`, `sign`, `exponent` or `mantissa` means."""
        return {
            "any": range(self.width),
            "sign": range(self.width - 1, self.width),
            "exponent": range(self.mantissa, self.width - 1),
            "mantissa": range(self.mantissa),
        }[kind]


FORMATS = {
    torch.float64: Format(integer=torch.int64, width=64, mantissa=52),
    torch.float32: Format(integer=torch.int32, width=32, mantissa=23),
    torch.bfloat16: Format(integer=torch.int16, width=16, mantissa=7),
    torch.float16: Format(integer=torch.int16, width=16, mantissa=10),
}


def as_integers(value: Tensor) -> Tensor:
    """The same memory as signed integers: xor works on them, and equal bits compare equal (NaN too)."""
    return value.view(FORMATS[value.dtype].integer)


def as_hex(value_K: Tensor) -> list[str]:
    """Bit patterns as `0x...` of full width, shape [K]."""
    form = FORMATS[value_K.dtype]
    mask = (1 << form.width) - 1
    return [f"0x{integer & mask:0{form.width // 4}x}" for integer in as_integers(value_K).tolist()]
