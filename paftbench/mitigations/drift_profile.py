"""What a synchronisation shows of the errors before it: how far every rank had drifted, beside its gradient.

Shapes: L = ranks hosted here, W = world size, n = elements of a block or parameter. Norms are taken per parameter, so
that they have the same bits in every placement.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import inf, isnan, sqrt

import torch
from torch import Tensor

from paftbench import sums
from paftbench.mitigations.response import scales
from paftbench.mitigations.step import Step
from paftbench.ranks.layout import Layout, Slot


@dataclass(frozen=True, kw_only=True)
class LayerDrift:
    """A weight tensor on one rank: RMS of its distance to the mean, RMS of its gradient."""

    name: str
    spread: float
    gradient: float


@dataclass(frozen=True, kw_only=True)
class DriftProfile:
    """L2 norms of each rank, in rank order.

    `spreads`: distance to the mean; `scaled`: the same in units of learning rate times gradient, the distance itself
    for SGD; `received`: the gradient after aggregation; `gradients`: the one that rules compare the spread with.
    `layers` is where each rank drifted most.
    """

    parameters: int
    spreads: tuple[float, ...]
    scaled: tuple[float, ...]
    received: tuple[float, ...]
    gradients: tuple[float, ...]
    layers: tuple[LayerDrift, ...]

    def rms(self, norms: Sequence[float]) -> float:
        """RMS over ranks and elements."""
        return sqrt(sums.total(norm**2 for norm in norms) / (len(norms) * self.parameters))


def is_weight(slot: Slot) -> bool:
    """Whether PAFT's research code would profile it: a weight tensor of no normalisation layer, and not the LM head."""
    return len(slot.shape) > 1 and "lm_head" not in slot.name


Norms = dict[str, list[float]]


def profile(step: Step, means: Sequence[Tensor], *, local: Norms | None = None) -> DriftProfile:
    """Compare the replicas with the means that are about to replace them.

    `local` holds the L2 norms of the hosted ranks' own gradients by parameter; without it the received ones are taken.
    Every process must call it: a few numbers per rank are gathered.
    """
    replicas, layout = step.replicas, step.layout
    starts = [start for start, _ in replicas.owners]
    moved = [block_Ln - mean_1n for block_Ln, mean_1n in zip(step.parameters, means, strict=True)]
    scale = scales(replicas)
    spreads = norms_of(layout, zip(starts, moved, strict=True))
    scaled = spreads
    if scale is not None:
        # Adam divided each element by this root: multiplied by it, a distance is again a sum of gradients' errors.
        products = [x_Ln.mul_(scale_Ln) for x_Ln, scale_Ln in zip(moved, scale, strict=True)]
        scaled = norms_of(layout, zip(starts, products, strict=True))
    received = norms_of(layout, replicas.gradients)
    gradients = received if local is None else local
    numbers, widest = [], _widest(layout, spreads)
    for row in range(len(step.ranks.local)):
        kinds = (spreads, scaled, received, gradients)
        totals = [sqrt(sums.total(norm_L[row] ** 2 for norm_L in norms.values())) for norms in kinds]
        slot = widest[row]
        root = sqrt(slot.stop - slot.start)
        at = layout.slots.index(slot)  # a name cannot be gathered, its place can
        here = gradients[slot.name][row] if slot.name in gradients else 0.0
        numbers.append([*totals, float(at), spreads[slot.name][row] / root, here / root])
    device = step.parameters[0].device
    rows = step.ranks.gather(torch.tensor(numbers, dtype=torch.float64, device=device)).tolist()
    layers = [LayerDrift(name=layout.slots[int(at)].name, spread=s, gradient=g) for *_, at, s, g in rows]
    spread_W, scaled_W, received_W, gradient_W = (tuple(row[column] for row in rows) for column in range(4))
    return DriftProfile(
        parameters=layout.size,
        spreads=spread_W,
        scaled=scaled_W,
        received=received_W,
        gradients=gradient_W,
        layers=tuple(layers),
    )


def norms_of(layout: Layout, blocks: Iterable[tuple[int, Tensor]]) -> Norms:
    """L2 norm of each row of blocks (flat start, [L, n]), by parameter."""
    norms: Norms = {}
    for start, block_Ln in blocks:
        for slot in layout.within(start, start + block_Ln.shape[1]):
            part_Ln = block_Ln[:, slot.start - start : slot.stop - start]
            norms[slot.name] = sums.norms([part_Ln]) or [0.0] * block_Ln.shape[0]
    return norms


def _widest(layout: Layout, spreads: Norms) -> list[Slot]:
    """Per hosted rank, the weight tensor with the largest RMS distance, one that is not a number above all.

    Of all parameters where none is a weight.
    """
    slots = [slot for slot in layout.slots if slot.stop > slot.start]
    slots = [slot for slot in slots if is_weight(slot)] or slots

    def rms(slot: Slot, row: int) -> float:
        spread = spreads[slot.name][row] / sqrt(slot.stop - slot.start)
        return inf if isnan(spread) else spread

    rows = range(len(next(iter(spreads.values()))))
    return [max(slots, key=lambda slot, row=row: rms(slot, row)) for row in rows]  # type: ignore[misc]
