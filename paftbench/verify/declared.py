"""How any plugin is declared: what lets it be set from an experiment file, listed and explained."""

import re
from collections.abc import Iterator
from dataclasses import MISSING, dataclass, fields
from typing import Any

import yaml

from paftbench.building import build, field_values
from paftbench.plugins import meaning_of
from paftbench.verify.promise import expect, promise
from paftbench.verify.variants import built, variants


@dataclass(frozen=True)
class Declared:
    """A plugin class on trial."""

    cls: Any

    @property
    def label(self) -> str:
        return ""

    @property
    def instances(self) -> Iterator[Any]:
        """The class in every unit and setting that can be tried."""
        units = getattr(self.cls, "units", None)
        for own in [{}] if units is None else [{"unit": unit, "degree": low} for unit, (low, _) in units.items()]:
            for values in variants(self.cls, skip=("degree", "unit")):
                yield built(self.cls, {**values, **own})


@promise()
def it_is_a_frozen_dataclass_with_keyword_only_fields(case: Declared) -> None:
    own = vars(case.cls)
    added = [name for name, hint in own.get("__annotations__", {}).items() if "ClassVar" not in str(hint)]
    if added:
        expect("__dataclass_fields__" in own, "@dataclass(frozen=True, kw_only=True) on the class", "no dataclass")
    options = case.cls.__dataclass_params__
    expect(options.frozen, "a frozen dataclass", "one whose fields can be set")
    positional = [field.name for field in fields(case.cls) if field.init and not field.kw_only]
    expect(not positional, "keyword-only fields (kw_only=True)", f"positional {', '.join(positional)}")


@promise()
def every_field_has_a_default(case: Declared) -> None:
    bare = [f.name for f in fields(case.cls) if f.init and f.default is MISSING and f.default_factory is MISSING]
    expect(not bare, "a default for every field", f"none for {', '.join(bare)}")


@promise()
def its_name_is_one_word_in_lower_case(case: Declared) -> None:
    name = case.cls.name
    expect(bool(re.fullmatch(r"[a-z][a-z0-9_]*", name)), "a name of lower-case letters, digits and _", repr(name))


@promise()
def a_docstring_says_what_it_is_for(case: Declared) -> None:
    text = case.cls.__doc__ or ""
    made = text.startswith(f"{case.cls.__name__}(")  # what a dataclass gives itself where there is none
    expect(bool(text.strip()) and not made, "a docstring", "none")


@promise()
def the_docstring_explains_every_field(case: Declared) -> None:
    names = [field.name for field in fields(case.cls) if field.init]
    unexplained = [name for name in names if not meaning_of(case.cls, name)]
    expect(not unexplained, "a sentence about each field, with its name in backticks", f"none on {unexplained}")


@promise()
def its_fields_survive_an_experiment_file(case: Declared) -> None:
    for instance in case.instances:
        values = field_values(instance)
        again = build(case.cls, yaml.safe_load(yaml.safe_dump(values)), case.cls.__name__)
        expect(again == instance, f"{values} again from its YAML", field_values(again))
        given = built(case.cls, values)
        expect(field_values(given) == values, f"fields as they were given, {values}", field_values(given))
