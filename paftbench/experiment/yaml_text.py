"""YAML as users expect it: `1e-3` is a number, `no` is a word, a duplicate key is an error."""

import re
from pathlib import Path
from typing import Any

import yaml

_FLOAT = re.compile(r"[-+]?(?:\d[\d_]*\.?[\d_]*|\.\d[\d_]*)[eE][-+]?\d+|[-+]?(?:\d[\d_]*\.[\d_]*|\.\d[\d_]*)"
                    r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")  # fmt: skip
_BOOL = re.compile(r"true|True|TRUE|false|False|FALSE")


class _Loader(yaml.SafeLoader):
    """YAML 1.1 with the numbers and booleans of 1.2, no dates, and no duplicate keys."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, str | int | float | bool):
                raise ValueError(f"line {key_node.start_mark.line + 1}: a key must be a word or a number, got {key!r}")
            if key in seen:
                raise ValueError(f"line {key_node.start_mark.line + 1}: duplicate key {key!r}")
            seen.add(key)
        return super().construct_mapping(node, deep)


_REPLACED = ("tag:yaml.org,2002:float", "tag:yaml.org,2002:bool", "tag:yaml.org,2002:timestamp")
_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag not in _REPLACED]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(_REPLACED[0], re.compile(f"^(?:{_FLOAT.pattern})$"), list("-+0123456789."))
_Loader.add_implicit_resolver(_REPLACED[1], re.compile(f"^(?:{_BOOL.pattern})$"), list("tTfF"))


def read_yaml(text: str, where: str) -> Any:
    """The value of a YAML text; `ValueError` of one line that starts with `where`."""
    try:
        return yaml.load(text, Loader=_Loader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        problem = getattr(error, "problem", None) or " ".join(str(error).split())
        raise ValueError(f"{where} is not YAML: {place}{problem}") from None
    except ValueError as error:
        raise ValueError(f"{where}, {error}") from None


def read_yaml_file(path: Path) -> Any:
    """The value of a YAML file."""
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise ValueError(f"{path} is not YAML: it is not UTF-8 text") from None
    return read_yaml(text, str(path))
