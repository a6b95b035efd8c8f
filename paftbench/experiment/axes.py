"""What cells are multiplied by: label axes, field axes, seeds. Importable without torch."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from paftbench.building import optional_mapping
from paftbench.errors import Refused
from paftbench.records.kinds import Label
from paftbench.records.seeds import Seed
from paftbench.suggest import brief

MOST_SEEDS: Final = 10_000
LONGEST_LABEL: Final = 200


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
    for name, choices in optional_mapping(content, where).items():
        if name in ("seed", "seeds"):
            raise Refused(f"{where}: {name} is no axis; use seeds, which all cells share")
        if isinstance(choices, Mapping) and choices:
            axes.append(_label_axis(name, choices, f"{where}.{name}"))
        elif isinstance(choices, list) and choices:
            axes.append(field_axis(name, choices))
        else:
            raise Refused(
                f"{where}.{name}: expected a list of values or labels with their changes, got {brief(choices)}"
            )
    return tuple(axes)


def _label_axis(name: str, choices: Mapping[Any, Any], where: str) -> Axis:
    labels = [_printable(str(label), where) for label in choices]
    changes = [optional_mapping(c, f"{where}.{label}") for label, c in zip(labels, choices.values(), strict=True)]
    return Axis(name=name, choices=tuple(zip(labels, changes, strict=True)), is_field=False)


def field_axis(name: str, values: list[Any], *, optional: bool = False) -> Axis:
    """An axis over the values of one field of a trial; a value given twice counts once."""
    unique = {json.dumps(value, sort_keys=True, default=str): value for value in values}
    choices = tuple((_label(text, value, name), {name: value}) for text, value in unique.items())
    return Axis(name=name, choices=choices, is_field=True, optional=optional)


def parse_seeds(content: Any, where: str) -> tuple[Seed, ...]:
    """`5` is 0 to 4; a list is itself, its items seeds or pairs of a seed and a fault seed."""
    if _is_whole(content) and content >= 1:
        if content > MOST_SEEDS:
            raise Refused(f"{where}: seeds must be at most {MOST_SEEDS}, got {content}")
        return tuple(map(Seed, range(content)))
    items = content if isinstance(content, list | tuple) else []
    pairs = [item if isinstance(item, list | tuple) and len(item) == 2 else [item] for item in items]
    if not pairs or any(not _is_whole(seed) or seed < 0 for pair in pairs for seed in pair):
        raise Refused(
            f"{where}: seeds must be a number >= 1 or a list of numbers >= 0, got {brief(content)}; a pair of numbers "
            "in the list is [seed, fault_seed]"
        )
    if (largest := max(max(pair) for pair in pairs)) >= 2**63:
        raise Refused(f"{where}: seeds must be below 2**63, got {largest}")
    return tuple({str(seed): seed for seed in (Seed(*pair) for pair in pairs)}.values())


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _label(text: str, value: Any, where: str) -> Label:
    if isinstance(value, str):
        return _printable(value, where)
    return value if isinstance(value, int | float | bool) or value is None else text


def _printable(label: str, where: str) -> str:
    """A label stands in names, which are lines of listings."""
    if not label or not label.isprintable() or len(label) > LONGEST_LABEL:
        raise Refused(f"{where}: a label must be 1 to {LONGEST_LABEL} printable characters, got {brief(label)}")
    return label
