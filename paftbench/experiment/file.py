"""Experiment files: axes, grids, seeds and expectations, checked for shape. Importable without torch."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from paftbench.building import build, field_values, list_of, mapping_of, optional_mapping, text_of
from paftbench.errors import Missing, Refused
from paftbench.experiment.axes import Axis, parse_axes, parse_seeds
from paftbench.experiment.scale import SMALL, Scale, parse_scales
from paftbench.experiment.yaml_text import read_yaml, read_yaml_file
from paftbench.records.door import SCHEMA
from paftbench.records.expectation import Expectation
from paftbench.records.plan import Judge
from paftbench.records.roles import CLEAN, GOLDEN
from paftbench.records.seeds import Seed
from paftbench.suggest import brief, did_you_mean

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*(/[A-Za-z0-9_][A-Za-z0-9_.-]*)*")
_RESERVED = (GOLDEN, CLEAN)


@dataclass(frozen=True, kw_only=True)
class Grid:
    """One block of an experiment; `seeds` replaces the experiment's where given, `over` is what a scale sets last."""

    name: str
    set: Mapping[str, Any] = field(default_factory=dict)
    axes: tuple[Axis, ...] = ()
    seeds: tuple[Seed, ...] | None = None
    over: tuple[Mapping[str, Any], ...] = ()


_WHOLE = (Grid(name="all"),)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What is set once for all cells of an experiment."""

    golden: bool = True
    clean: bool = False
    averaging_limit: bool = False
    judge: Judge = "worst_rank"
    tolerance: int | float = 0.0

    def __post_init__(self) -> None:
        if self.tolerance < 0:
            raise Refused(f"tolerance (in the metric's unit) must be a number >= 0, got {self.tolerance!r}")


@dataclass(frozen=True, kw_only=True)
class Experiment(Settings):
    """A YAML file, read, at one of its scales; `source` is how errors call it."""

    source: str
    name: str
    about: str = ""
    cost: str = ""
    base: Mapping[str, Any] = field(default_factory=dict)
    axes: tuple[Axis, ...] = ()
    grids: tuple[Grid, ...] = _WHOLE
    seeds: tuple[Seed, ...] | None = None
    expect: tuple[Expectation, ...] = ()
    scale: str = SMALL
    scales: Mapping[str, Scale] = field(default_factory=dict)

    def at_scale(self, name: str) -> "Experiment":
        """The experiment at one of its scales; `LookupError` for one it has not."""
        if name == self.scale:
            return self
        if name not in self.scales:
            raise Missing(f"{self.source}: no scale {name!r}{did_you_mean(name, [self.scale, *self.scales])}")
        scale = self.scales[name]
        return replace(
            self,
            scale=name,
            scales={},
            axes=scale.replaced(self.axes),
            grids=tuple(_scaled(grid, scale) for grid in self.grids),
            seeds=scale.seeds or self.seeds,
            cost=scale.cost or self.cost,
        )


_NOT_IN_FILES = ("source", "scale", "over")


def _scaled(grid: Grid, scale: Scale) -> Grid:
    axes = scale.replaced(grid.axes)
    if change := scale.grids.get(grid.name):
        axes = change.replaced(axes)
        # An axis of the whole experiment, replaced in this grid alone.
        axes += tuple(axis for axis in change.axes if axis.name not in {own.name for own in axes})
    return replace(grid, axes=axes, over=scale.over(grid.name), seeds=None if scale.seeds else grid.seeds)


def load(name_or_path: str, scale: str = SMALL) -> Experiment:
    """A shipped experiment by name, or a YAML file; `LookupError` or `ValueError` of one line."""
    return _read(name_or_path).at_scale(scale)


def _read(name_or_path: str) -> Experiment:
    path = Path(name_or_path)
    if path.suffix in (".yaml", ".yml"):
        if not path.is_file():
            raise Missing(f"experiment file {name_or_path} does not exist")
        return parse_experiment(read_yaml_file(path), str(path))
    shipped = shipped_experiments()
    if name_or_path in shipped:
        text = shipped[name_or_path].read_text(encoding="utf-8")
        return parse_experiment(read_yaml(text, name_or_path), name_or_path)
    if path.is_file():
        return parse_experiment(read_yaml_file(path), str(path))
    if path.is_dir():
        raise Missing(f"{name_or_path} is a directory; expected an experiment: a YAML file or a shipped name")
    raise Missing(f"no experiment {name_or_path!r}{did_you_mean(name_or_path, shipped)}")


def shipped_experiments() -> dict[str, Traversable]:
    """The experiments that travel with the package, by name."""
    return dict(sorted(_walk(files("paftbench.experiments"), "")))


def _walk(folder: Traversable, prefix: str) -> Iterator[tuple[str, Traversable]]:
    for item in folder.iterdir():
        if item.is_dir():
            yield from _walk(item, f"{prefix}{item.name}/")
        elif item.name.endswith(".yaml"):
            yield prefix + item.name.removesuffix(".yaml"), item


def parse_experiment(content: Any, source: str) -> Experiment:
    """An experiment from the plain values of its file."""
    values = mapping_of(content, source, ["schema", *_fields_of(Experiment)])
    schema = values.pop("schema", SCHEMA)
    if isinstance(schema, bool) or schema != SCHEMA:
        raise Refused(f"{source}: schema {brief(schema)} is not {SCHEMA}, the one this version reads")
    if not isinstance(values.get("name"), str) or not _NAME.fullmatch(values["name"]):
        raise Refused(f"{source}: name must be words joined by '/', got {brief(values.get('name'))}")
    given = {key: values[key] for key in Settings.__dataclass_fields__ if key in values}
    values |= field_values(build(Settings, given, f"{source}:"))
    for key in ("about", "cost"):
        values[key] = text_of(values.get(key), f"{source}: {key}")
    values["base"] = optional_mapping(values.get("base"), f"{source}: base")
    values["axes"] = parse_axes(values.get("axes"), f"{source}: axes")
    if "grids" in values:
        values["grids"] = _grids(values["grids"], source)
    if "seeds" in values:
        values["seeds"] = parse_seeds(values["seeds"], source)
    grids = {grid.name: grid.axes for grid in values.get("grids", _WHOLE)}
    values["scales"] = parse_scales(values.get("scales"), f"{source}: scales", values["axes"], grids)
    axes = [*values["axes"], *(axis for grid in grids.values() for axis in grid)]
    values["expect"] = _expectations(values.get("expect"), f"{source}: expect", axes)
    return Experiment(source=source, **values)


def _grids(content: Any, source: str) -> tuple[Grid, ...]:
    if not isinstance(content, list) or not content:
        raise Refused(f"{source}: grids must be a list with at least one grid, got {brief(content)}")
    grids: list[Grid] = []
    for i, item in enumerate(content):
        values = mapping_of(item, f"{source}: grids[{i}]", _fields_of(Grid))
        name = values.get("name")
        if not isinstance(name, str) or not _NAME.fullmatch(name) or name in _RESERVED:
            raise Refused(f"{source}: grids[{i}]: name must be a word other than golden and clean, got {brief(name)}")
        if name in [grid.name for grid in grids]:
            raise Refused(f"{source}: two grids are called {name!r}")
        where = f"{source}: grid {name}"
        grids.append(
            Grid(
                name=name,
                set=optional_mapping(values.get("set"), f"{where}: set"),
                axes=parse_axes(values.get("axes"), f"{where}: axes"),
                seeds=parse_seeds(values["seeds"], where) if "seeds" in values else None,
            )
        )
    return tuple(grids)


def _expectations(content: Any, where: str, axes: list[Axis]) -> tuple[Expectation, ...]:
    known = sorted({"grid", "seed", "mitigation", *(axis.name for axis in axes)})
    return tuple(_expectation(item, f"{where}[{i}]", known) for i, item in enumerate(list_of(content, where)))


def _expectation(item: Any, where: str, known: list[str]) -> Expectation:
    values = mapping_of(item, where, Expectation.__dataclass_fields__)
    values["where"] = optional_mapping(values.get("where"), f"{where}.where", known)
    return build(Expectation, values, where)


def _fields_of(cls: type[Experiment] | type[Grid]) -> Sequence[str]:
    return [name for name in cls.__dataclass_fields__ if name not in _NOT_IN_FILES]
