"""The flat index space: every trainable parameter in registration order, aliases of tied weights once.

Draws, injector, buckets and log share this one map. Shapes: N = elements of the whole gradient, L = ranks hosted
here, n = elements of a block.
"""

import fnmatch
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor, nn

from paftbench.errors import Refused
from paftbench.suggest import did_you_mean

COMPILED = "_orig_mod."


@dataclass(frozen=True, kw_only=True)
class Slot:
    """One trainable parameter's place: flat indices `start` to `stop` (excluded)."""

    name: str
    start: int
    stop: int
    shape: tuple[int, ...]
    dtype: torch.dtype


class Layout:
    """Name, offset, shape and dtype of every trainable parameter."""

    def __init__(self, slots: Sequence[Slot]) -> None:
        self.slots = tuple(slots)
        self.size = self.slots[-1].stop if self.slots else 0
        self._starts = [slot.start for slot in self.slots]

    @classmethod
    def of(cls, module: nn.Module) -> "Layout":
        """The layout of a module; `ValueError` where it has nothing to train or a parameter is not contiguous."""
        slots, start = [], 0
        for name, parameter in trainable(module):
            if not parameter.is_contiguous():
                raise Refused(f"parameter {name!r} is not contiguous: its flat indices would not be its memory order")
            stop = start + parameter.numel()
            slots.append(Slot(name=name, start=start, stop=stop, shape=tuple(parameter.shape), dtype=parameter.dtype))
            start = stop
        if not slots:
            raise Refused("the model has no trainable parameter")
        return cls(slots)

    @property
    def dtypes(self) -> frozenset[torch.dtype]:
        return frozenset(slot.dtype for slot in self.slots)

    @cached_property
    def by_name(self) -> dict[str, Slot]:
        return {slot.name: slot for slot in self.slots}

    def at(self, index: int) -> Slot:
        """The slot that holds a flat index."""
        return self.slots[bisect_right(self._starts, index) - 1]

    def within(self, start: int, stop: int) -> Iterator[Slot]:
        """The slots of a range that cuts no parameter."""
        position = bisect_right(self._starts, start) - 1
        while position < len(self.slots) and self.slots[position].start < stop:
            yield self.slots[position]
            position += 1

    def outside(self, blocks: Iterable[tuple[int, Tensor]]) -> list[Slot]:
        """The slots of which no (flat start, [L, n]) block holds anything; those without elements aside."""
        covered = {slot.start for start, block in blocks for slot in self.within(start, start + block.shape[1])}
        return [slot for slot in self.slots if slot.start not in covered and slot.start < slot.stop]

    def retyped(self, blocks: Sequence[tuple[int, Tensor]]) -> "Layout":
        """The same space in the dtypes of (flat start, [L, n]) blocks; slots outside get theirs where it is one."""
        held = {slot: block.dtype for start, block in blocks for slot in self.within(start, start + block.shape[1])}
        dtypes = set(held.values())
        common = dtypes.pop() if len(dtypes) == 1 else None
        return Layout([replace(slot, dtype=held.get(slot) or common or slot.dtype) for slot in self.slots])

    def select(self, pattern: str | Sequence[str]) -> tuple[Slot, ...]:
        """The slots whose names match a glob, or any glob of a list; `ValueError` for one that matches nothing."""
        patterns = [pattern] if isinstance(pattern, str) else list(pattern)
        for glob in patterns:
            if not any(fnmatch.fnmatchcase(slot.name, glob) for slot in self.slots):
                raise Refused(f"parameters: {glob!r} matches no parameter{did_you_mean(glob, self.by_name)}")
        return tuple(s for s in self.slots if any(fnmatch.fnmatchcase(s.name, glob) for glob in patterns))


def trainable(module: nn.Module) -> list[tuple[str, nn.Parameter]]:
    """Trainable parameters by name in registration order; a tied weight appears once, under its first name.

    What torch.compile wraps keeps the name it has without it.
    """
    named = ((name.replace(COMPILED, ""), parameter) for name, parameter in module.named_parameters())
    return [(name, parameter) for name, parameter in named if parameter.requires_grad]
