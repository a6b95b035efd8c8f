"""What cells are multiplied by: label axes, field axes, seeds. Importable without torch."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from paftbench.plugins import did_you_mean
from paftbench.store import Label


@dataclass(frozen=True, kw_only=True)
class Axis:
    """One dimension of a grid: what it is called, and what each of its labels changes in a trial."""

    name: str
    choices: tuple[tuple[Label, Mapping[str, Any]], ...]
    is_field: bool
    optional: bool = False  # whether cells without the fault or mitigation that it addresses do without the axis

    @cached_property
    def touches(self) -> frozenset[str]:
        """The trial's fields that the axis changes."""
        return frozenset(key.partition(".")[0] for _, changes in self.choices for key in changes)


def parse_axes(content: Any, where: str) -> tuple[Axis, ...]:
    """Label axes (a mapping of labels to changes) and field axes (a list of values for a field)."""
    axes = []
    for name, choices in plain_mapping(content or {}, where, None).items():
        if name in ("seed", "seeds"):
            raise ValueError(f"{where}: {name} is no axis; use seeds, which all cells share")
        if isinstance(choices, Mapping) and choices:
            axes.append(_label_axis(name, choices, f"{where}.{name}"))
        elif isinstance(choices, list) and choices:
            axes.append(field_axis(name, choices))
        else:
            raise ValueError(f"{where}.{name}: expected a list of values or labels with their changes, got {choices!r}")
    return tuple(axes)


def _label_axis(name: str, choices: Mapping[Any, Any], where: str) -> Axis:
    labels = [str(label) for label in choices]
    for label in labels:
        if labels.count(label) > 1:
            raise ValueError(f"{where}: the label {label!r} is given twice")
    changes = [{} if content is None else content for content in choices.values()]
    plain = [plain_mapping(c, f"{where}.{label}", None) for label, c in zip(labels, changes, strict=True)]
    return Axis(name=name, choices=tuple(zip(labels, plain, strict=True)), is_field=False)


def field_axis(name: str, values: list[Any], *, optional: bool = False) -> Axis:
    """An axis over the values of one field of a trial; a value given twice counts once."""
    unique = {json.dumps(value, sort_keys=True, default=str): value for value in values}
    choices = tuple((_label(text, value), {name: value}) for text, value in unique.items())
    return Axis(name=name, choices=choices, is_field=True, optional=optional)


def parse_seeds(content: Any, where: str) -> tuple[int, ...]:
    """`5` is 0 to 4; a list is itself."""
    if isinstance(content, int) and not isinstance(content, bool) and content >= 1:
        return tuple(range(content))
    seeds = content if isinstance(content, list | tuple) else [None]
    if not seeds or any(not isinstance(seed, int) or isinstance(seed, bool) or seed < 0 for seed in seeds):
        raise ValueError(f"{where}: seeds must be a number >= 1 or a list of numbers >= 0, got {content!r}")
    if max(seeds) >= 2**63:
        raise ValueError(f"{where}: seeds must be below 2**63, got {max(seeds)}")
    return tuple(dict.fromkeys(seeds))


def plain_mapping(content: Any, where: str, known: Any) -> dict[str, Any]:
    """A copy of a YAML mapping whose keys are all in `known` (None: any); `ValueError` of one line otherwise."""
    if not isinstance(content, Mapping):
        raise ValueError(f"{where}: expected a mapping, got {content!r}")
    for key in content:
        if known is not None and key not in known:
            raise ValueError(f"{where}: unknown key {key!r}{did_you_mean(str(key), known)}")
    return {str(key): value for key, value in content.items()}


def _label(text: str, value: Any) -> Label:
    return value if isinstance(value, str | int | float | bool) or value is None else text
