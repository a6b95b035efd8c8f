"""From an experiment and overrides to cells: one resolved mapping per combination of axis labels."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import prod
from typing import Any, Final

from paftbench.building import build
from paftbench.errors import Missing, Refused
from paftbench.experiment.axes import Axis, field_axis, parse_seeds
from paftbench.experiment.fields import has_field, merged
from paftbench.experiment.file import Experiment, Grid, Settings
from paftbench.experiment.overrides import Override
from paftbench.records.kinds import Label
from paftbench.records.seeds import Seed
from paftbench.suggest import did_you_mean

MOST_TRIALS: Final = 20_000  # what is planned in seconds
_SETTINGS = tuple(Settings.__dataclass_fields__)
_LISTS = ("faults", "mitigations")
Choices = tuple[tuple[Axis, Label], ...]


@dataclass(frozen=True, kw_only=True)
class Combination:
    """One combination: the trial's plain mapping, and the label chosen on each axis."""

    grid: str
    choices: Choices
    spec: Mapping[str, Any]
    seeds: tuple[Seed, ...]

    def choices_beside(self, fields: frozenset[str]) -> Choices:
        """The choices on axes that change anything but `fields`."""
        return tuple((axis, label) for axis, label in self.choices if not axis.touches <= fields)


def name_of(grid: str, choices: Choices, seed: Seed, first: Sequence[str] = ()) -> str:
    """`<grid>/<label>.../<field=value>.../s<seed>`."""
    labels = [str(label) for axis, label in choices if not axis.is_field]
    values = [f"{axis.name}={label}" for axis, label in choices if axis.is_field]
    return "/".join([grid, *first, *labels, *values, f"s{seed}"])


def overridden(
    experiment: Experiment, overrides: Sequence[Override], fields: Sequence[str]
) -> tuple[Experiment, dict[str, Any]]:
    """The experiment with axes narrowed and added and settings replaced; beside it, the fields set in every trial.

    `fields` are a trial's. `LookupError` for a key that is none of axis, field and setting, and for unknown labels.
    """
    fixed: dict[str, Any] = {}
    keys = [override.key for override in overrides]
    for override in overrides:
        key, values = override.key, list(override.values)
        if keys.count(key) > 1:
            raise Refused(f"{key} is given {keys.count(key)} times; commas sweep, as in {key}=1,2")
        if key == "grid" and not _has_axis(experiment, key):
            experiment = _with_grids(experiment, values)
        elif key in ("seed", "seeds"):
            experiment = _with_seeds(experiment, key, values)
        elif _has_axis(experiment, key):
            experiment = _with_narrowed(experiment, override)
        elif key in _SETTINGS:
            experiment = _with_setting(experiment, key, values)
        elif key.partition(".")[0] not in fields:
            axes = [axis.name for axis in _all_axes(experiment)]
            raise Missing(f"unknown key {key!r}{did_you_mean(key, {*axes, *fields, *_SETTINGS, 'grid', 'seeds'})}")
        elif len(values) > 1:
            experiment = _swept(experiment, key, values)
        else:
            _require_target(experiment, key)
            fixed[key] = values[0]
    return experiment, fixed


def cells_of(experiment: Experiment, fixed: Mapping[str, Any]) -> Iterator[Combination]:
    """Every cell in the order of grids and axes; label axes act before field axes, `fixed` last."""
    _check_axes(experiment)
    for grid in experiment.grids:
        where = f"{experiment.source}: grid {grid.name}"
        base, axes = _base_of(experiment, grid), _axes_of(experiment, grid)
        for chosen in product(*(axis.choices for axis in axes)):
            pairs = [(axis, label, changes) for axis, (label, changes) in zip(axes, chosen, strict=True)]
            spec = base
            for axis, _, changes in pairs:
                spec = spec if axis.is_field else _placed(spec, changes, f"{where}:")
            lacking = [axis for axis in axes if axis.optional and not _applies(spec, axis.name)]
            if any(axis in lacking and label != axis.choices[0][0] for axis, label, _ in pairs):
                continue  # one such cell is enough
            pairs = [pair for pair in pairs if pair[0] not in lacking]
            for axis, _, changes in pairs:
                spec = _placed(spec, changes, f"{where}: axis") if axis.is_field else spec
            applying = {key: value for key, value in fixed.items() if _applies(spec, key)}
            yield Combination(
                grid=grid.name,
                choices=tuple((axis, label) for axis, label, _ in pairs),
                spec=merged(spec, applying),
                seeds=grid.seeds or experiment.seeds or parse_seeds([spec.get("seed", 0)], experiment.source),
            )


def _placed(spec: dict[str, Any], changes: Mapping[str, Any], where: str) -> dict[str, Any]:
    """`merged` with a place before its error."""
    try:
        return merged(spec, changes)
    except (LookupError, ValueError) as error:
        raise type(error)(f"{where} {error}") from None


def _base_of(experiment: Experiment, grid: Grid) -> dict[str, Any]:
    """The mapping that the axes of a grid start from."""
    spec: dict[str, Any] = {}
    for changes in (experiment.base, grid.set, *grid.over):
        spec = _placed(spec, changes, f"{experiment.source}: grid {grid.name}:")
    return spec


def _axes_of(experiment: Experiment, grid: Grid) -> list[Axis]:
    """The experiment's axes but for those that the grid has itself, and the grid's."""
    given = {axis.name for axis in grid.axes}
    return [*(axis for axis in experiment.axes if axis.name not in given), *grid.axes]


def _check_axes(experiment: Experiment) -> None:
    """`ValueError` for more trials than can be planned in seconds, and for axes that say a trial's length twice."""
    trials = 0
    for grid in experiment.grids:
        axes = _axes_of(experiment, grid)
        trials += prod(len(axis.choices) for axis in axes) * len(grid.seeds or experiment.seeds or "1")
        if {"steps", "epochs"} <= {axis.name for axis in axes if axis.is_field}:
            raise Refused(
                f"{experiment.source}: grid {grid.name}: steps and epochs say the same: only one can be an axis"
            )
    if trials > MOST_TRIALS:
        raise Refused(f"{experiment.source}: more than {MOST_TRIALS} trials; split it into several experiments")


def _applies(spec: Mapping[str, Any], key: str) -> bool:
    """A key that addresses a fault or mitigation by name reaches only the cells that have it."""
    return key.partition(".")[0] not in _LISTS or "." not in key or has_field(spec, key)


def _all_axes(experiment: Experiment) -> list[Axis]:
    return [*experiment.axes, *(axis for grid in experiment.grids for axis in grid.axes)]


def _has_axis(experiment: Experiment, key: str) -> bool:
    return any(axis.name == key for axis in _all_axes(experiment))


def _with_narrowed(experiment: Experiment, override: Override) -> Experiment:
    """The named axis narrowed wherever it stands; grids that have none of its labels are left out."""
    named = [axis for axis in _all_axes(experiment) if axis.name == override.key]
    labels = {str(label) for axis in named if not axis.is_field for label, _ in axis.choices}
    for value in override.values:
        if labels and str(value) not in labels:
            raise Missing(f"axis {override.key} has no label {str(value)!r}{did_you_mean(str(value), labels)}")

    def narrowed(axes: tuple[Axis, ...]) -> tuple[Axis, ...]:
        return tuple(_narrowed(axis, override) if axis.name == override.key else axis for axis in axes)

    grids = (replace(grid, axes=narrowed(grid.axes)) for grid in experiment.grids)
    kept = tuple(grid for grid in grids if all(axis.choices for axis in grid.axes))
    return replace(experiment, axes=narrowed(experiment.axes), grids=kept)


def _narrowed(axis: Axis, override: Override) -> Axis:
    if axis.is_field:
        return field_axis(axis.name, list(override.values))
    wanted = [str(value) for value in override.values]
    return replace(axis, choices=tuple((label, changes) for label, changes in axis.choices if label in wanted))


def _swept(experiment: Experiment, key: str, values: list[Any]) -> Experiment:
    """A new field axis, in every grid that has what the key addresses."""
    _require_target(experiment, key)
    added = field_axis(key, values, optional=True)
    return replace(
        experiment,
        grids=tuple(
            replace(grid, axes=(*grid.axes, added)) if _reaches(experiment, grid, key) else grid
            for grid in experiment.grids
        ),
    )


def _require_target(experiment: Experiment, key: str) -> None:
    if any(_reaches(experiment, grid, key) for grid in experiment.grids):
        return
    field = key.partition(".")[0]
    specs = [spec for grid in experiment.grids for spec in _variants(experiment, grid)]
    lists = [spec[field] for spec in specs if isinstance(spec.get(field), list)]
    items = [item for listed in lists for item in listed if isinstance(item, Mapping)]
    names = {str(item.get("name", item.get("model"))) for item in items}
    raise Missing(f"{key}: no {field[:-1]} of this experiment has the name{did_you_mean(key.split('.')[1], names)}")


def _reaches(experiment: Experiment, grid: Grid, key: str) -> bool:
    return any(_applies(spec, key) for spec in _variants(experiment, grid))


def _variants(experiment: Experiment, grid: Grid) -> Iterator[dict[str, Any]]:
    """The grid's mapping, and what each label of each axis makes of it."""
    spec = _base_of(experiment, grid)
    yield spec
    for axis in (*experiment.axes, *grid.axes):
        if not axis.is_field:
            for _, changes in axis.choices:
                yield merged(spec, changes)


def _with_grids(experiment: Experiment, values: list[Any]) -> Experiment:
    names = [grid.name for grid in experiment.grids]
    for value in values:
        if value not in names:
            raise Missing(f"no grid {value!r}{did_you_mean(str(value), names)}")
    return replace(experiment, grids=tuple(grid for grid in experiment.grids if grid.name in values))


def _with_seeds(experiment: Experiment, key: str, values: list[Any]) -> Experiment:
    given = values[0] if len(values) == 1 else values
    seeds = parse_seeds([given] if key == "seed" and not isinstance(given, list) else given, f"{key}={given}")
    return replace(experiment, seeds=seeds, grids=tuple(replace(grid, seeds=None) for grid in experiment.grids))


def _with_setting(experiment: Experiment, key: str, values: list[Any]) -> Experiment:
    if len(values) > 1:
        raise Refused(f"{key} is a setting of the whole experiment: it takes one value, got {values!r}")
    built = build(Settings, {key: values[0]}, f"{key}={values[0]}:")
    return replace(experiment, **{key: getattr(built, key)})
