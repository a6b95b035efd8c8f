"""Gaussian noise on every element: Definition 2.1 of the PAFT paper at site `result` on all ranks."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from paftbench.bits import as_integers
from paftbench.faults.draws import Draws
from paftbench.faults.model import DenseFault
from paftbench.sums import norms, squares_by_part

CHUNK = 1 << 16  # elements that stay in the cache; a multiple of 16, so that chunks draw what one whole normal_ would


@dataclass(frozen=True, kw_only=True)
class GaussianNoise(DenseFault):
    """Add independent N(0, std^2) to every element.

    `std` is absolute; `rms` is times the root mean square of what is struck, parameter by parameter. Source: Definition
    2.1 of the PAFT paper (ICLR 2025 submission 10612); what it prints as sigma^2 is used as the standard deviation by
    its research code, and so it is here.
    """

    name = "gaussian_noise"
    units: ClassVar[Mapping[str, tuple[float, float]]] = {"std": (0.0, 1e30), "rms": (0.0, 1e30)}
    reports_norm = True

    unit: str = "std"

    def change(self, grad_N: Tensor, start: int, state: dict[str, Tensor], draws: Draws) -> int:
        if self.degree == 0:
            return 0
        noise = torch.empty(min(CHUNK + 16, grad_N.numel()), dtype=torch.float32, device=grad_N.device)
        changed = first = filled = 0
        sizes: list[int] = []
        for part in draws.parts:
            elements = part.elements
            if filled and filled + elements > CHUNK:
                changed += self._add(grad_N[first : first + filled], noise[:filled], sizes, draws)
                first, filled, sizes = first + filled, 0, []
            generator = draws.torch_generator(part.name, grad_N.device)
            std = self._std(grad_N, first + filled, elements)
            while elements:
                size = CHUNK if elements >= CHUNK + 16 else elements
                eps = noise[filled : filled + size].normal_(generator=generator)
                if self.unit == "rms":
                    eps.mul_(std)
                filled, elements = filled + size, elements - size
                sizes.append(size)
                if elements:
                    changed += self._add(grad_N[first : first + filled], noise[:filled], sizes, draws)
                    first, filled, sizes = first + filled, 0, []
        return changed + self._add(grad_N[first : first + filled], noise[:filled], sizes, draws)

    def _std(self, grad_N: Tensor, first: int, elements: int) -> float:
        """Standard deviation of the noise on one parameter's part."""
        if self.unit == "std":
            return self.degree
        (norm,) = norms([grad_N[None, first : first + elements]])
        return self.degree * norm / elements**0.5

    def _add(self, grad: Tensor, noise: Tensor, sizes: list[int], draws: Draws) -> int:
        """Add noise in place, which is made of pieces of `sizes`; how many elements changed."""
        if self.unit == "std":
            noise.mul_(self.degree)
        noisy = grad + noise.to(grad.dtype)
        # What counts is the change, not the draw: rounding swallows small noise.
        wide = (noisy.float(), grad.float()) if grad.dtype.itemsize < 4 else (noisy, grad)
        draws.squares += squares_by_part(wide[0] - wide[1], sizes)
        changed = int(torch.count_nonzero(as_integers(noisy) != as_integers(grad)))
        grad.copy_(noisy)
        return changed
