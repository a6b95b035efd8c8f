"""Gaussian noise on every element: Definition 2.1 of the PAFT paper at site `result` on all ranks."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from paftbench.bits import as_integers
from paftbench.faults import Changed, DenseFault, Draws, Slice
from paftbench.sums import norms, squares_by_part

CHUNK = 1 << 16  # elements that stay in the cache


@dataclass(frozen=True, kw_only=True)
class GaussianNoise(DenseFault):
    """Add independent N(0, std^2) to every element.

    `std` is absolute; `rms` is times the root mean square of what is struck, parameter by parameter. Source: Definition
    2.1 of the PAFT paper (ICLR 2025 submission 10612); what it prints as sigma^2 is used as the standard deviation by
    its research code, and so it is here.
    """

    name = "gaussian_noise"
    units: ClassVar[Mapping[str, tuple[float, float]]] = {"std": (0.0, 1e30), "rms": (0.0, 1e30)}

    unit: str = "std"

    def change(self, grad_N: Tensor, where: Slice, state: dict[str, Tensor], draws: Draws) -> Changed:
        elements = first = 0
        squares: list[float] = []
        for noise_n, sizes in self._noise(grad_N, where, draws):
            here_n = grad_N[first : first + noise_n.numel()]
            noisy_n = here_n + noise_n.to(here_n.dtype)
            # What counts is the change, not the draw: rounding swallows small noise. 16 bits would round that too.
            wide = (noisy_n.float(), here_n.float()) if here_n.dtype.itemsize < 4 else (noisy_n, here_n)
            squares += squares_by_part(wide[0] - wide[1], sizes)
            elements += int(torch.count_nonzero(as_integers(noisy_n) != as_integers(here_n)))
            here_n.copy_(noisy_n)
            first += noise_n.numel()
        return Changed(elements, tuple(squares))

    def _noise(self, grad_N: Tensor, where: Slice, draws: Draws) -> Iterator[tuple[Tensor, list[int]]]:
        """The slice's noise in float32, a cache's worth at a time, and the sizes of the parts or pieces that it is of.

        All of it lies in one buffer, so each is to be used before the next is asked for.
        """
        room = torch.empty(min(CHUNK + 16, grad_N.numel()), dtype=torch.float32, device=grad_N.device)
        filled = first = 0
        sizes: list[int] = []
        for part in where.parts:
            # Small parts share the buffer. One that does not fit begins anew, so that its pieces, and with them the
            # rounding of their sums, are the same whatever lies before it.
            if filled and filled + part.elements > CHUNK:
                yield room[:filled], sizes
                filled, sizes = 0, []
            generator = draws.torch_generator(part.name, grad_N.device)
            std = self._std(grad_N[first : first + part.elements])
            left = part.elements
            while left:
                # normal_ fills 16 numbers at a time, draws the last 16 anew where they are no multiple of it, and below
                # 16 draws one by one. Pieces of a multiple of 16, and a last one of at least 16, are as one whole.
                size = CHUNK if left >= CHUNK + 16 else left
                room[filled : filled + size].normal_(generator=generator).mul_(std)
                sizes.append(size)
                filled, left = filled + size, left - size
                if left:
                    yield room[:filled], sizes
                    filled, sizes = 0, []
            first += part.elements
        yield room[:filled], sizes

    def _std(self, part_n: Tensor) -> float:
        """Standard deviation of the noise on a parameter, of which nothing is struck yet."""
        if self.unit == "std":
            return self.degree
        (norm,) = norms([part_n[None]])
        return self.degree * norm / part_n.numel() ** 0.5
