"""Steps of an injector without any training: gradients in, struck gradients out; or parameters, or optimizer state.

Shapes: T = steps, W = ranks, N = elements of the whole gradient.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor

from paftbench.bits import as_integers
from paftbench.faults.fault import Fault
from paftbench.faults.injector import Injector, Row
from paftbench.faults.slices import Piece
from paftbench.ranks.axis import Ranks
from paftbench.ranks.layout import Layout, Slot
from paftbench.ranks.replicas import Memory
from paftbench.ranks.sites import GRADIENT_SITES, Site

# Parameters of one, two and three axes, and one of a single element.
SHAPES = {"first.weight": (40, 25), "first.bias": (13,), "second.weight": (3, 5, 7), "last.scale": (1,)}

Cut = Callable[[Layout, Tensor], Iterable[list[Piece]]]


def layout_of(dtype: torch.dtype = torch.float32, shapes: Mapping[str, tuple[int, ...]] = SHAPES) -> Layout:
    """A layout without a model."""
    slots, start = [], 0
    for name, shape in shapes.items():
        stop = start + torch.Size(shape).numel()
        slots.append(Slot(name=name, start=start, stop=stop, shape=shape, dtype=dtype))
        start = stop
    return Layout(slots)


def gradients(layout: Layout, *, steps: int = 1, world_size: int = 4, seed: int = 0) -> Tensor:
    """Standard normal gradients [T, W, N]."""
    generator = torch.Generator().manual_seed(seed)
    (dtype,) = layout.dtypes
    return torch.randn((steps, world_size, layout.size), generator=generator, dtype=torch.float64).to(dtype)


def whole(layout: Layout, grad_N: Tensor) -> Iterable[list[Piece]]:
    """The gradient in one piece."""
    yield [(0, grad_N)]


def in_slots(layout: Layout, grad_N: Tensor) -> Iterable[list[Piece]]:
    """A call for every parameter, in registration order."""
    for slot in layout.slots:
        yield [(slot.start, grad_N[slot.start : slot.stop])]


def in_buckets_backwards(layout: Layout, grad_N: Tensor) -> Iterable[list[Piece]]:
    """As DDP calls: buckets of two parameters, the last ones first."""
    for last in range(len(layout.slots), 0, -2):
        pair = layout.slots[max(0, last - 2) : last]
        yield [(slot.start, grad_N[slot.start : slot.stop]) for slot in reversed(pair)]


@dataclass(frozen=True, kw_only=True)
class Struck:
    """Gradients before and after the strikes [T, W, N] and the injector that struck them."""

    before_TWN: Tensor
    after_TWN: Tensor
    rows: list[Row]
    injector: Injector

    @property
    def differs_TWN(self) -> Tensor:
        """Whose bits changed."""
        return as_integers(self.before_TWN) != as_integers(self.after_TWN)


def strike(
    faults: Sequence[Fault],
    layout: Layout,
    grads_TWN: Tensor,
    *,
    seed: int = 0,
    attempt: int = 0,
    first: int = 0,
    cut: Cut = whole,
    local: Sequence[int] | None = None,
    shifted: int = 0,
    injector: Injector | None = None,
    unused: Sequence[Slot] = (),
) -> Struck:
    """Run steps `first`, first + 1, ... with the given gradients.

    `local` hosts only some of the W ranks; parameters in `unused` are never passed, which needs a cut into slots. Each
    gradient lies `shifted` elements behind an aligned address.
    """
    world_size = grads_TWN.shape[1]
    injector = injector or Injector(faults, layout, ranks_of(world_size, local), seed=seed)
    after_TWN = _shifted(grads_TWN, shifted)
    for step, after_WN in enumerate(after_TWN, start=first):
        injector.begin(step, attempt)
        for row, rank in enumerate(injector.ranks.local):
            for pieces in cut(layout, after_WN[rank]):
                kept = [piece for piece in pieces if layout.at(piece[0]) not in unused]
                for site in injector.sites & GRADIENT_SITES:
                    injector.strike(site, row, kept)
        injector.end(unused)
        for site in sorted(injector.sites - GRADIENT_SITES):
            injector.strike_memory(_memory(site, layout, after_WN, injector.ranks.local, cut, unused))
    return Struck(before_TWN=grads_TWN, after_TWN=after_TWN.contiguous(), rows=injector.drain(), injector=injector)


def _shifted(grads_TWN: Tensor, by: int) -> Tensor:
    """A copy whose rows start `by` elements behind a multiple of 64 bytes."""
    width = -(-grads_TWN.shape[2] // 64) * 64 + 64
    room = torch.zeros((*grads_TWN.shape[:2], width), dtype=grads_TWN.dtype)
    copy_TWN = room[..., by : by + grads_TWN.shape[2]]
    copy_TWN.copy_(grads_TWN)
    return copy_TWN


def _memory(
    site: Site, layout: Layout, value_WN: Tensor, local: Sequence[int], cut: Cut, unused: Sequence[Slot]
) -> Memory:
    """The same numbers as a space of the hosted ranks' memory; those ranks are neighbours, so blocks are views."""
    value_LN = value_WN[local[0] : local[-1] + 1]
    pieces = [piece for some in cut(layout, value_LN[0]) for piece in some if layout.at(piece[0]) not in unused]
    blocks = [(start, value_LN[:, start : start + part.numel()]) for start, part in sorted(pieces, key=lambda p: p[0])]
    return Memory(site=site, kind="momentum_buffer" if site is Site.OPTIMIZER_STATE else None, blocks=blocks)


def ranks_of(world_size: int, local: Sequence[int] | None = None) -> Ranks:
    """All ranks, or a share of them; faults never use the group."""
    if local is None:
        return Ranks.virtual(world_size)
    return Ranks(world_size, local, cast(Any, object()))


def same_bits(a: Tensor, b: Tensor) -> bool:
    """Whether dtype and every bit are equal."""
    return a.dtype == b.dtype and bool(torch.equal(as_integers(a), as_integers(b)))
