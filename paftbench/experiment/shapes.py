"""Pieces of an experiment file, held to their shape; errors are one line that says where. Importable without torch."""

from collections.abc import Mapping
from typing import Any

from paftbench.errors import Refused
from paftbench.suggest import brief, did_you_mean


def plain_mapping(content: Any, where: str, known: Any) -> dict[str, Any]:
    """A copy of a YAML mapping whose keys are all in `known` (None: any); `ValueError` of one line otherwise."""
    if not isinstance(content, Mapping):
        raise Refused(f"{where}: expected a mapping, got {brief(content)}")
    for key in content:
        if known is not None and key not in known:
            raise Refused(f"{where}: unknown key {brief(key)}{did_you_mean(str(key), known)}")
    return {str(key): value for key, value in content.items()}


def optional_mapping(values: Mapping[str, Any], key: str, where: str, known: Any = None) -> dict[str, Any]:
    """`plain_mapping` of a key that need not be there, or holds null."""
    return {} if values.get(key) is None else plain_mapping(values[key], f"{where}{key}", known)


def text_of(values: Mapping[str, Any], key: str, where: str) -> str:
    """A text for people, which may be left out or be a number."""
    value = values.get(key)
    if isinstance(value, bool) or not isinstance(value, str | int | float | None):
        raise Refused(f"{where}: {key} must be a text, got {brief(value)}")
    return "" if value is None else str(value)
