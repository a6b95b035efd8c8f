"""A plugin for each promise about how plugins are declared."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from contract_defects.good import Clip, Sparse


class NotADataclass(Sparse):
    """A fault model whose `factor` is no field."""

    factor: float = 2.0


@dataclass(frozen=True)
class Positional(Sparse):
    """A fault model with a positional `factor`."""

    factor: float = 2.0


@dataclass(frozen=True, kw_only=True)
class NoDefault(Sparse):
    """A fault model whose `factor` must be given."""

    factor: float


@dataclass(frozen=True, kw_only=True)
class TwoWords(Clip):
    """A mitigation with `limit` and a name that no command line likes."""

    name = "Clip value!"


@dataclass(frozen=True, kw_only=True)
class Silent(Clip):
    limit: float = 2.0


@dataclass(frozen=True, kw_only=True)
class Unexplained(Clip):
    """A mitigation with a field that nobody explains."""

    strength: float = 2.0


@dataclass(frozen=True, kw_only=True)
class ChangesItsFields(Clip):
    """A mitigation that takes `limit` for something else."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "limit", self.limit * 2)


@dataclass(frozen=True, kw_only=True)
class NoUnits(Sparse):
    """A fault model without units."""

    units: ClassVar[Mapping[str, tuple[float, float]]] = {}


@dataclass(frozen=True, kw_only=True)
class DtypesAsText(Sparse):
    """A fault model with dtypes that are none."""

    dtypes = frozenset({"bfloat16"})  # type: ignore[assignment]


@dataclass(frozen=True, kw_only=True)
class TakesAnyDegree(Sparse):
    """A fault model that checks nothing."""

    def __post_init__(self) -> None:
        pass


DEFECTS: dict[str, list[type]] = {
    "it_is_a_frozen_dataclass_with_keyword_only_fields": [NotADataclass, Positional],
    "every_field_has_a_default": [NoDefault],
    "its_name_is_one_word_in_lower_case": [TwoWords],
    "a_docstring_says_what_it_is_for": [Silent],
    "the_docstring_explains_every_field": [Unexplained],
    "its_fields_survive_an_experiment_file": [ChangesItsFields],
    "units_ranges_sites_and_dtypes_are_declared": [NoUnits, DtypesAsText],
    "a_degree_outside_the_range_is_refused_with_the_range_and_the_value": [TakesAnyDegree],
}
