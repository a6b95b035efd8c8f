"""One process's share of a checkpoint: a safetensors file, whose header holds the tree of the state besides.

The format (huggingface/safetensors, "Format"): the header's length in 8 bytes, little-endian; the header, JSON; then
the tensors' bytes at the offsets that it names. Written here, because a snapshot goes to a buffer that is used again.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor

from paftbench.errors import Refused
from paftbench.resilience.state_tree import put_together, taken_apart
from paftbench.store.files import opened

_NAMES: Final[Mapping[torch.dtype, str]] = {
    torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16", torch.int64: "I64",
    torch.int32: "I32", torch.int16: "I16", torch.int8: "I8", torch.uint8: "U8", torch.uint16: "U16",
    torch.uint32: "U32", torch.uint64: "U64", torch.bool: "BOOL", torch.float8_e4m3fn: "F8_E4M3",
    torch.float8_e5m2: "F8_E5M2",
}  # fmt: skip
_TREE: Final = "paftbench.tree"
_ALIGNED: Final = 8  # bytes; the data of a file start at a multiple of it


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """A state as its file will be: the bytes before the tensors, and the tensors in their order there."""

    header: bytes
    tensors: tuple[Tensor, ...]

    @property
    def bytes(self) -> int:
        """Of the whole file."""
        return len(self.header) + sum(tensor.numel() * tensor.element_size() for tensor in self.tensors)

    def pieces(self) -> Iterator[memoryview]:
        """The file's bytes, the header first, then tensor after tensor: each valid until the next is asked for."""
        yield memoryview(self.header)
        for tensor in self.tensors:
            flat_B = tensor.cpu().contiguous().view(-1).view(torch.uint8)
            yield memoryview(flat_B.numpy())  # type: ignore[arg-type]

    def copy_into(self, buffer: memoryview) -> None:
        """The whole file, into memory of its size."""
        start = len(self.header)
        buffer[:start] = self.header
        for tensor in self.tensors:
            size = tensor.numel() * tensor.element_size()
            if size:
                target_B = torch.frombuffer(buffer, dtype=torch.uint8, count=size, offset=start)
                target_B.view(tensor.dtype).view(tensor.shape).copy_(tensor)
            start += size


def snapshot_of(state: Any) -> Snapshot:
    """What the share of a state holds; `ValueError` where the state holds what no checkpoint can."""
    tree, tensors = taken_apart(state)
    # The largest elements first: every tensor then starts at a multiple of its own.
    ordered = sorted(tensors.items(), key=lambda item: -item[1].element_size())
    entries: dict[str, Any] = {"__metadata__": {_TREE: json.dumps(tree, separators=(",", ":"), allow_nan=False)}}
    start = 0
    for name, tensor in ordered:
        if tensor.dtype not in _NAMES:
            raise Refused(f"state holds a tensor of {tensor.dtype}, which no checkpoint can hold")
        end = start + tensor.numel() * tensor.element_size()
        entries[name] = {"dtype": _NAMES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [start, end]}
        start = end
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGNED)
    return Snapshot(header=len(text).to_bytes(8, "little") + text, tensors=tuple(tensor for _, tensor in ordered))


def read(path: Path, sha256: str) -> Any:
    """The state in a share; `ValueError` where its bytes are others than were written, or no share."""
    from safetensors.torch import load

    with opened(path) as file:
        content = file.read()
    if (found := hashlib.sha256(content).hexdigest()) != sha256:
        raise Refused(f"{path} has SHA-256 {found[:12]}..., written were {sha256[:12]}...")
    try:
        length = int.from_bytes(content[:8], "little")
        tree = json.loads(json.loads(content[8 : 8 + length])["__metadata__"][_TREE])
        return put_together(tree, load(content))
    except (KeyError, TypeError, RecursionError) as error:
        raise Refused(f"{path} is no share of a checkpoint of paftbench") from error
