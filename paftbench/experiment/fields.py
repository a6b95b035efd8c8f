"""Setting fields of a trial's plain mapping, by dotted path; faults and mitigations are addressed by name."""

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from paftbench.errors import Missing, Refused
from paftbench.suggest import did_you_mean

_LISTS = {"faults": "fault", "mitigations": "mitigation"}
_LENGTHS = ("steps", "epochs")


def merged(spec: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """`spec` with `changes` applied, both left as they were.

    Mappings merge, unless the change names another plugin (`workload: {name: gpt2}` over a resnet), which replaces;
    lists replace; dotted keys set one field. A trial's length is said once: `epochs` take the place of `steps`, and the
    other way round; `ValueError` for changes that say both.
    """
    given = [name for name in _LENGTHS if changes.get(name) is not None]
    if len(given) > 1:
        raise Refused(f"steps and epochs say the same: give one, got {changes['steps']!r} and {changes['epochs']!r}")
    kept = {key: value for key, value in spec.items() if not given or key not in _LENGTHS}
    return _merged(kept, changes)


def _merged(spec: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    result = deepcopy(dict(spec))
    for key, value in changes.items():
        if "." in key:
            set_field(result, key, deepcopy(value))
        elif isinstance(value, Mapping) and isinstance(result.get(key), Mapping) and _same_name(result[key], value):
            result[key] = _merged(result[key], value)
        else:
            result[key] = deepcopy(value)
    return result


def set_field(spec: dict[str, Any], key: str, value: Any) -> None:
    """Set `optimizer.lr`, `faults.noise.degree` and the like in place; errors name the key."""
    *path, last = key.split(".")
    at: Any = spec
    for depth, part in enumerate(path):
        at = _entry(at, part, key, path[depth - 1] if depth else "")
    if isinstance(at, list):
        raise Refused(f"{key}: expected a field after the name, as in {key}.degree")
    at[last] = value


def has_field(spec: Mapping[str, Any], key: str) -> bool:
    """Whether `set_field` would find the fault or mitigation that `key` addresses."""
    try:
        set_field(deepcopy(dict(spec)), key, None)
    except LookupError:
        return False
    return True


def _entry(at: Any, part: str, key: str, parent: str) -> Any:
    if isinstance(at, list):
        names = {str(item.get("name", item.get("model"))): item for item in at if isinstance(item, Mapping)}
        if part not in names:
            raise Missing(f"{key}: no {_LISTS.get(parent, parent)} {part!r}{did_you_mean(part, names)}")
        return names[part]
    if at.get(part) is None:
        at[part] = [] if part in _LISTS else {}
    if not isinstance(at[part], dict | list):
        raise Refused(f"{key}: {part} is {at[part]!r}, it has no fields")
    return at[part]


def _same_name(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    return all(key not in new or new[key] == old.get(key) for key in ("name", "kind"))
