"""Scales of an experiment: what changes between the small one, which the file itself describes, and the others.

Importable without torch.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from paftbench.building import mapping_of, optional_mapping, text_of
from paftbench.errors import Refused
from paftbench.experiment.axes import Axis, parse_axes, parse_seeds
from paftbench.records.seeds import Seed
from paftbench.suggest import did_you_mean

SMALL: Final = "small"


@dataclass(frozen=True, kw_only=True)
class Change:
    """Fields of a trial that are set over a grid's own, and axes that take the place of those of the same name."""

    set: Mapping[str, Any] = field(default_factory=dict)
    axes: tuple[Axis, ...] = ()

    def replaced(self, axes: Sequence[Axis]) -> tuple[Axis, ...]:
        """`axes` with those that this change has instead of them."""
        own = {axis.name: axis for axis in self.axes}
        return tuple(own.get(axis.name, axis) for axis in axes)


@dataclass(frozen=True, kw_only=True)
class Scale(Change):
    """A change of every grid; `grids` go further in one of them, and `seeds` and `cost` replace the experiment's."""

    grids: Mapping[str, Change] = field(default_factory=dict)
    seeds: tuple[Seed, ...] | None = None
    cost: str = ""

    def over(self, grid: str) -> tuple[Mapping[str, Any], ...]:
        """What is set over base and grid, one after the other."""
        return (self.set, self.grids[grid].set) if grid in self.grids else (self.set,)


def parse_scales(
    content: Any, where: str, axes: Sequence[Axis], grids: Mapping[str, Sequence[Axis]]
) -> dict[str, Scale]:
    """Scales by name; `axes` are the experiment's and `grids` those of each grid, which a scale may replace."""
    scales = {}
    for name, item in optional_mapping(content, where).items():
        own = f"{where}.{name}"
        if name == SMALL:
            raise Refused(f"{own}: the file itself is the scale {SMALL}")
        values = mapping_of(item, own, Scale.__dataclass_fields__)
        every = [*axes, *(axis for grid in grids.values() for axis in grid)]
        parts = optional_mapping(values.get("grids"), f"{own}.grids", grids)
        changes = {}
        for grid, part in parts.items():
            place = f"{own}.grids.{grid}"
            fields = mapping_of(part, place, Change.__dataclass_fields__)
            changes[grid] = Change(**_change(fields, place, [*axes, *grids[grid]]))
        scales[name] = Scale(
            **_change(values, own, every),
            grids=changes,
            seeds=parse_seeds(values["seeds"], own) if "seeds" in values else None,
            cost=text_of(values.get("cost"), f"{own}: cost"),
        )
    return scales


def _change(values: Mapping[str, Any], where: str, known: Sequence[Axis]) -> dict[str, Any]:
    axes = parse_axes(values.get("axes"), f"{where}.axes")
    names = {axis.name for axis in known}
    for axis in axes:
        if axis.name not in names:
            raise Refused(f"{where}.axes: the file has no axis {axis.name!r}{did_you_mean(axis.name, names)}")
    return {"set": optional_mapping(values.get("set"), f"{where}.set"), "axes": axes}
