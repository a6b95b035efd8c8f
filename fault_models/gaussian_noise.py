"""Gaussian noise on every element: Definition 2.1 of the PAFT paper at site `result` on all ranks."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from paftbench.bits import as_integers
from paftbench.draws import Draws
from paftbench.faults import DenseFault

CHUNK = 1 << 16  # elements; a multiple of 16, so that chunks draw what one whole normal_ would


@dataclass(frozen=True, kw_only=True)
class GaussianNoise(DenseFault):
    """Add independent N(0, std^2) to every element.

    `std` is absolute; `rms` is times the root mean square of the struck parameter's gradient. Source: Definition 2.1 of
    the PAFT paper (ICLR 2025 submission 10612); what it prints as sigma^2 is used as the standard deviation by its
    research code, and so it is here.
    """

    name = "gaussian_noise"
    units: ClassVar[Mapping[str, tuple[float, float]]] = {"std": (0.0, 1e30), "rms": (0.0, 1e30)}
    reports_norm = True

    unit: str = "std"

    def change(self, grad_N: Tensor, start: int, state: dict[str, Tensor], draws: Draws) -> int:
        if self.degree == 0:
            return 0
        std = self.degree
        if self.unit == "rms":
            std *= float(torch.linalg.vector_norm(grad_N, dtype=torch.float64)) / grad_N.numel() ** 0.5
        noise = torch.empty(min(CHUNK, grad_N.numel()), dtype=torch.float32, device=grad_N.device)
        generator = draws.torch_generator(start, grad_N.device)
        changed, squared_norm = 0, 0.0
        for grad in grad_N.split(CHUNK):
            eps = noise[: grad.numel()].normal_(generator=generator).mul_(std)
            squared_norm += float(torch.dot(eps, eps))
            noisy = grad + eps.to(grad.dtype)
            changed += int(torch.count_nonzero(as_integers(noisy) != as_integers(grad)))
            grad.copy_(noisy)
        draws.squared_norm = squared_norm
        return changed
