"""What torch's libraries are, and what they compute on this processor under the switches that are set.

oneDNN exports no name for the code it has chosen and MKL none that is documented, so what they chose is held by what it
computes: fixed values through a convolution, a product of matrices, element-wise functions, and normal draws, hashed.
"""

import hashlib
import os
import re
from typing import Final

import torch
from torch import Tensor

_BUILDS: Final = {"blas": r"(oneAPI Math Kernel Library Version \S+ Build \w+)", "onednn": r"(MKL-DNN v\S+ \(.*\))"}


def libraries() -> dict[str, str]:
    """The builds that compute: BLAS, oneDNN, the C library's mathematics; those that there are."""
    said = torch.__config__.show()
    found = {name: match[1] for name, pattern in _BUILDS.items() if (match := re.search(pattern, said))}
    if "blas" not in found and (match := re.search(r"BLAS_INFO=(\w+)", said)):
        found["blas"] = match[1]
    try:
        libc = os.confstr("CS_GNU_LIBC_VERSION")
    except (AttributeError, ValueError, OSError):
        libc = None
    return found | ({"libc": libc} if libc else {})


def bits() -> dict[str, str]:
    """A hash of what each kind of kernel gives for the same values; a few milliseconds.

    Equal hashes do not prove that two machines compute alike, other ones prove that they do not. `normal` covers the
    draws of dense noise.
    """
    with torch.no_grad():
        return {
            "convolution": _digest(*_convolved()),
            "matmul": _digest(_values(64, 200) @ _values(200, 48), _values(4, 20, 64) @ _values(4, 64, 20)),
            "elementwise": _digest(*_mapped(_values(30, 100) * 8)),
            "normal": _digest(_values(1001).normal_(generator=torch.Generator().manual_seed(1))),
        }


def _convolved() -> tuple[Tensor, ...]:
    image, kernel = _values(4, 8, 14, 14), _values(16, 8, 3, 3)
    shape = ([1, 1], [1, 1], [1, 1], False, [0, 0], 1)  # stride, padding, dilation, transposed, output padding, groups
    forward = torch.ops.aten.convolution(image, kernel, None, *shape)
    back = torch.ops.aten.convolution_backward(forward, image, kernel, None, *shape, [True, True, False])
    return forward, back[0], back[1]


def _mapped(value: Tensor) -> tuple[Tensor, ...]:
    functions = (torch.exp, torch.tanh, torch.nn.functional.gelu, torch.sum)
    return *(function(value) for function in functions), value.softmax(1), value.sum(0), value.sum(1)


def _values(*shape: int) -> Tensor:
    """Values in -0.5..0.5 by integer arithmetic, so the same everywhere."""
    # The constants of C's example of rand(); 24 bits are what a float32 holds exactly.
    index = torch.arange(torch.Size(shape).numel(), dtype=torch.int64, device="cpu")
    return (((index * 1103515245 + 12345) % 2**24).to(torch.float32) / 2**24 - 0.5).reshape(shape)


def _digest(*values: Tensor) -> str:
    digest = hashlib.sha256()
    for value in values:
        digest.update(value.contiguous().view(torch.int32).numpy().tobytes())
    return digest.hexdigest()[:8]
