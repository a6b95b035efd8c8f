"""Experiment files: axes, grids, seeds and expectations, checked for shape. Importable without torch."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from importlib.resources import files
from importlib.resources.abc import Traversable
from math import isfinite
from pathlib import Path
from typing import Any, get_args

from paftbench.experiment.yaml_text import read_yaml, read_yaml_file
from paftbench.plugins import did_you_mean
from paftbench.store import SCHEMA, Judge, Label

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*(/[A-Za-z0-9_][A-Za-z0-9_.-]*)*")
_RESERVED = ("golden", "clean")
_BOUNDS = ("at_least", "at_most", "never")


@dataclass(frozen=True, kw_only=True)
class Axis:
    """One dimension of a grid: what it is called, and what each of its labels changes in a trial."""

    name: str
    choices: tuple[tuple[Label, Mapping[str, Any]], ...]
    is_field: bool

    @cached_property
    def touches(self) -> frozenset[str]:
        """The trial's fields that the axis changes."""
        return frozenset(key.partition(".")[0] for _, changes in self.choices for key in changes)


@dataclass(frozen=True, kw_only=True)
class Grid:
    """One block of an experiment; `seeds` replaces the experiment's where given."""

    name: str
    set: Mapping[str, Any] = field(default_factory=dict)
    axes: tuple[Axis, ...] = ()
    seeds: tuple[int, ...] | None = None


@dataclass(frozen=True, kw_only=True)
class Expectation:
    """What `check` holds: a value of the cells that `where` selects, and its bound."""

    where: Mapping[str, Label]
    value: str
    at_least: float | None = None
    at_most: float | None = None
    never: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """A YAML file, read; `source` is how errors call it."""

    source: str
    name: str
    about: str = ""
    cost: str = ""
    base: Mapping[str, Any] = field(default_factory=dict)
    axes: tuple[Axis, ...] = ()
    grids: tuple[Grid, ...] = (Grid(name="all"),)
    seeds: tuple[int, ...] | None = None
    golden: bool = True
    clean: bool = False
    averaging_limit: bool = False
    judge: Judge = "worst_rank"
    tolerance: float = 0.0
    expect: tuple[Expectation, ...] = ()


def load(name_or_path: str) -> Experiment:
    """A shipped experiment by name, or a YAML file; `LookupError` or `ValueError` of one line."""
    path = Path(name_or_path)
    if path.suffix in (".yaml", ".yml"):
        if not path.is_file():
            raise LookupError(f"experiment file {name_or_path} does not exist")
        return parse_experiment(read_yaml_file(path), str(path))
    shipped = shipped_experiments()
    if name_or_path in shipped:
        text = shipped[name_or_path].read_text(encoding="utf-8")
        return parse_experiment(read_yaml(text, name_or_path), name_or_path)
    if path.is_file():
        return parse_experiment(read_yaml_file(path), str(path))
    raise LookupError(f"no experiment {name_or_path!r}{did_you_mean(name_or_path, shipped)}")


def shipped_experiments() -> dict[str, Traversable]:
    """The experiments that travel with the package, by name."""
    return dict(sorted(_walk(files("experiments"), "")))


def _walk(folder: Traversable, prefix: str) -> Iterator[tuple[str, Traversable]]:
    for item in folder.iterdir():
        if item.is_dir():
            yield from _walk(item, f"{prefix}{item.name}/")
        elif item.name.endswith(".yaml"):
            yield prefix + item.name.removesuffix(".yaml"), item


def parse_experiment(content: Any, source: str) -> Experiment:
    """An experiment from the plain values of its file."""
    values = _mapping(content, source, [*Experiment.__dataclass_fields__, "schema"][1:])
    if values.pop("schema", SCHEMA) != SCHEMA:
        raise ValueError(f"{source}: schema {content['schema']!r} is not {SCHEMA}, the one this version reads")
    if not isinstance(values.get("name"), str) or not _NAME.fullmatch(values["name"]):
        raise ValueError(f"{source}: name must be words joined by '/', got {values.get('name')!r}")
    check_settings(values, source)
    for key in ("about", "cost"):
        values[key] = str(values.get(key) or "")
    values["base"] = _mapping(values.get("base") or {}, f"{source}: base", None)
    values["axes"] = parse_axes(values.get("axes"), f"{source}: axes")
    if "grids" in values:
        values["grids"] = _grids(values["grids"], source)
    if "seeds" in values:
        values["seeds"] = parse_seeds(values["seeds"], source)
    axes = [*values["axes"], *(axis for grid in values.get("grids", ()) for axis in grid.axes)]
    values["expect"] = _expectations(values.get("expect"), f"{source}: expect", axes)
    return Experiment(source=source, **values)


def check_settings(values: Mapping[str, Any], where: str) -> None:
    """`ValueError` for a setting of the whole experiment that is out of its range."""
    for key in ("golden", "clean", "averaging_limit"):
        if not isinstance(values.get(key, True), bool):
            raise ValueError(f"{where}: {key} must be true or false, got {values[key]!r}")
    judge, tolerance = values.get("judge", "worst_rank"), values.get("tolerance", 0.0)
    if judge not in get_args(Judge):
        raise ValueError(f"{where}: judge {judge!r} is not known{did_you_mean(str(judge), get_args(Judge))}")
    if not _is_number(tolerance) or tolerance < 0:
        raise ValueError(f"{where}: tolerance (in the metric's unit) must be a number >= 0, got {tolerance!r}")


def _grids(content: Any, source: str) -> tuple[Grid, ...]:
    if not isinstance(content, list) or not content:
        raise ValueError(f"{source}: grids must be a list with at least one grid, got {content!r}")
    grids: list[Grid] = []
    for i, item in enumerate(content):
        values = _mapping(item, f"{source}: grids[{i}]", Grid.__dataclass_fields__)
        name = values.get("name")
        if not isinstance(name, str) or not _NAME.fullmatch(name) or name in _RESERVED:
            raise ValueError(f"{source}: grids[{i}]: name must be a word other than golden and clean, got {name!r}")
        if name in [grid.name for grid in grids]:
            raise ValueError(f"{source}: two grids are called {name!r}")
        where = f"{source}: grid {name}"
        grids.append(
            Grid(
                name=name,
                set=_mapping(values.get("set") or {}, f"{where}: set", None),
                axes=parse_axes(values.get("axes"), f"{where}: axes"),
                seeds=parse_seeds(values["seeds"], where) if "seeds" in values else None,
            )
        )
    return tuple(grids)


def parse_axes(content: Any, where: str) -> tuple[Axis, ...]:
    """Label axes (a mapping of labels to changes) and field axes (a list of values for a field)."""
    axes = []
    for name, choices in _mapping(content or {}, where, None).items():
        if name in ("seed", "seeds"):
            raise ValueError(f"{where}: {name} is no axis; use seeds, which all cells share")
        if isinstance(choices, Mapping) and choices:
            labelled = {str(label): _mapping(c or {}, f"{where}.{name}.{label}", None) for label, c in choices.items()}
            axes.append(Axis(name=name, choices=tuple(labelled.items()), is_field=False))
        elif isinstance(choices, list) and choices:
            axes.append(field_axis(name, choices))
        else:
            raise ValueError(f"{where}.{name}: expected a list of values or labels with their changes, got {choices!r}")
    return tuple(axes)


def field_axis(name: str, values: list[Any]) -> Axis:
    """An axis over the values of one field of a trial; a value given twice counts once."""
    unique = {json.dumps(value, sort_keys=True, default=str): value for value in values}
    choices = tuple((_label(text, value), {name: value}) for text, value in unique.items())
    return Axis(name=name, choices=choices, is_field=True)


def parse_seeds(content: Any, where: str) -> tuple[int, ...]:
    """`5` is 0 to 4; a list is itself."""
    if isinstance(content, int) and not isinstance(content, bool) and content >= 1:
        return tuple(range(content))
    seeds = content if isinstance(content, list | tuple) else [None]
    if not seeds or any(not isinstance(seed, int) or isinstance(seed, bool) or seed < 0 for seed in seeds):
        raise ValueError(f"{where}: seeds must be a number >= 1 or a list of numbers >= 0, got {content!r}")
    return tuple(dict.fromkeys(seeds))


def _expectations(content: Any, where: str, axes: list[Axis]) -> tuple[Expectation, ...]:
    if not isinstance(content or [], list):
        raise ValueError(f"{where}: expected a list, got {content!r}")
    known = sorted({"grid", "seed", "mitigation", *(axis.name for axis in axes)})
    return tuple(_expectation(item, f"{where}[{i}]", known) for i, item in enumerate(content or []))


def _expectation(item: Any, where: str, known: list[str]) -> Expectation:
    values = _mapping(item, where, Expectation.__dataclass_fields__)
    values["where"] = _mapping(values.get("where") or {}, f"{where}.where", known)
    if not isinstance(values.get("value"), str):
        raise ValueError(f"{where}: value must name a measured value, got {values.get('value')!r}")
    if not any(bound in values for bound in _BOUNDS):
        raise ValueError(f"{where}: a bound is missing, one of {', '.join(_BOUNDS)}")
    for bound in ("at_least", "at_most"):
        if bound in values and not _is_number(values[bound]):
            raise ValueError(f"{where}: {bound} must be a number, got {values[bound]!r}")
    never = values.get("never", [])
    if not isinstance(never, list) or not all(isinstance(outcome, str) for outcome in never):
        raise ValueError(f"{where}: never must be a list of outcomes, got {never!r}")
    values["never"] = tuple(never)
    return Expectation(**values)


def _mapping(content: Any, where: str, known: Any) -> dict[str, Any]:
    if not isinstance(content, Mapping):
        raise ValueError(f"{where}: expected a mapping, got {content!r}")
    for key in content:
        if known is not None and key not in known:
            raise ValueError(f"{where}: unknown key {key!r}{did_you_mean(str(key), known)}")
    return {str(key): value for key, value in content.items()}


def _label(text: str, value: Any) -> Label:
    return value if isinstance(value, str | int | float | bool) or value is None else text


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)
