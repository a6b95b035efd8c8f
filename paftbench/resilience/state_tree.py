"""A state as tensors and a tree of JSON that says where they stand: what a checkpoint holds instead of a pickle.

A state is nested dictionaries, lists and tuples of tensors, NumPy arrays, numbers, text, bytes, dtypes and None. Keys
of dictionaries may be text, whole numbers, None or tuples of them. Everything comes back as what it was, kinds and
order included; of subclasses only `OrderedDict` and `Counter` stay what they were.
"""

from collections import Counter, OrderedDict
from collections.abc import Mapping
from math import isfinite
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from paftbench.errors import Refused

_MAPPINGS: Final[Mapping[str, type]] = {"dict": dict, "ordered": OrderedDict, "counter": Counter}
_SEQUENCES: Final[Mapping[str, type]] = {"list": list, "tuple": tuple}


def taken_apart(state: Any, at: str = "state") -> tuple[Any, dict[str, Tensor]]:
    """The tree and its tensors by name, not copied; `ValueError` naming the place of what no checkpoint can hold."""
    tensors: dict[str, Tensor] = {}
    return _tree(state, at, tensors), tensors


def put_together(tree: Any, tensors: Mapping[str, Tensor]) -> Any:
    """The inverse of `taken_apart`; `ValueError` where the tree is not one of ours."""
    match tree:
        case None | bool() | int() | float() | str():
            return tree
        case {"tensor": str(name)}:
            return tensors[name]
        case {"complex tensor": str(name)}:
            return torch.view_as_complex(tensors[name])
        case {"array": str(name)}:
            return tensors[name].numpy()
        case {"number": str(text)}:
            return float(text)
        case {"complex": [str(real), str(imaginary)]}:
            return complex(float(real), float(imaginary))
        case {"bytes": str(text)}:
            return bytes.fromhex(text)
        case {"dtype": str(name)} if isinstance(getattr(torch, name, None), torch.dtype):
            return getattr(torch, name)
        case {"kind": str(kind), "items": list(items)} if kind in _SEQUENCES:
            return _SEQUENCES[kind](put_together(item, tensors) for item in items)
        case {"kind": str(kind), "pairs": list(pairs)} if kind in _MAPPINGS:
            return _MAPPINGS[kind]({put_together(key, tensors): put_together(own, tensors) for key, own in pairs})
    raise Refused(f"a checkpoint's tree holds something that is none of its parts: {str(tree)[:80]}")


def difference(one: Any, other: Any, at: str = "state") -> str | None:
    """Where two states differ in structure, and how: keys, lengths, shapes, types of numbers; None where they agree.

    Numbers and the values of tensors may differ: that is what a state is for.
    """
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        if one.shape != other.shape or one.dtype != other.dtype:
            return f"{at} is {_described(other)} there and {_described(one)} here"
        return None
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        for key in [*one, *(key for key in other if key not in one)]:
            if key not in one or key not in other:
                return f"{at} has {key!r} only {'here' if key in one else 'there'}"
            if found := difference(one[key], other[key], f"{at}.{key}"):
                return found
        return None
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        if len(one) != len(other):
            return f"{at} has {len(other)} parts there and {len(one)} here"
        places = (
            difference(own, its, f"{at}[{place}]") for place, (own, its) in enumerate(zip(one, other, strict=True))
        )
        return next((found for found in places if found), None)
    if isinstance(one, (Tensor, Mapping)) != isinstance(other, (Tensor, Mapping)):
        return f"{at} is {_described(other)} there and {_described(one)} here"
    return None


def _tree(value: Any, at: str, tensors: dict[str, Tensor]) -> Any:
    match value:
        case Mapping():
            pairs = [[_key(key, at), _tree(own, f"{at}.{key}", tensors)] for key, own in value.items()]
            kind = "counter" if isinstance(value, Counter) else "ordered" if isinstance(value, OrderedDict) else "dict"
            return {"kind": kind, "pairs": pairs}
        case list() | tuple():
            items = [_tree(own, f"{at}[{place}]", tensors) for place, own in enumerate(value)]
            return {"kind": "tuple" if isinstance(value, tuple) else "list", "items": items}
        case Tensor():
            return _tensor(value, at, tensors)
        case np.ndarray():
            return {"array": _named(torch.from_numpy(np.ascontiguousarray(value)), tensors)}
        case np.generic():
            return _tree(value.item(), at, tensors)
        case float() if not isfinite(value):
            return {"number": repr(value)}
        case None | bool() | int() | float() | str():
            return value
        case complex():
            return {"complex": [repr(value.real), repr(value.imag)]}
        case bytes():
            return {"bytes": value.hex()}
        case torch.dtype():
            return {"dtype": str(value).removeprefix("torch.")}
    raise Refused(
        f"{at} cannot be in a checkpoint, which holds tensors, arrays, numbers, text, bytes, lists, tuples and "
        f"dictionaries of them: got {type(value).__name__}"
    )


def _tensor(value: Tensor, at: str, tensors: dict[str, Tensor]) -> dict[str, str]:
    """Only what is memory and nothing else can be written."""
    if value.layout is not torch.strided or value.is_meta or value.is_quantized or hasattr(value, "to_local"):
        raise Refused(f"{at} cannot be in a checkpoint: its tensor is sparse, quantized, spread or without memory")
    value = value.detach()
    if value.is_complex():
        return {"complex tensor": _named(torch.view_as_real(value.resolve_conj()), tensors)}
    return {"tensor": _named(value.resolve_neg(), tensors)}


def _named(value: Tensor, tensors: dict[str, Tensor]) -> str:
    name = f"{len(tensors):06d}"
    tensors[name] = value
    return name


def _key(key: Any, at: str) -> Any:
    if isinstance(key, tuple):
        return {"kind": "tuple", "items": [_key(own, at) for own in key]}
    if key is None or isinstance(key, (str, int)):
        return key
    raise Refused(f"{at} cannot be in a checkpoint: a key is {type(key).__name__}, not text, a whole number or None")


def _described(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"{str(value.dtype).removeprefix('torch.')} {list(value.shape)}"
    return type(value).__name__
