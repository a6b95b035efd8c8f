"""What a dense fault did to a slice, in its own words. Shapes: N = elements of the slice."""

from dataclasses import dataclass
from numbers import Real
from typing import Any

import torch
from torch import Tensor

from paftbench.bits import as_integers
from paftbench.faults.slices import Slice
from paftbench.sums import squares_by_part


@dataclass(frozen=True)
class Changed:
    """Returned by a dense fault's `change`: how many `elements` have other bits, and by how much.

    `squares` are sums of the squared change over each part, or over pieces of parts, so that the logged norm does not
    hang on how buckets cut. `struck`: elements that were met, of a fault that strikes a range of the slice, or nothing
    of it; None is all.
    """

    elements: int
    squares: tuple[float, ...]
    struck: int | None = None

    @classmethod
    def between(cls, before_N: Tensor, after_N: Tensor, where: Slice, struck: int | None = None) -> "Changed":
        """What differs between a copy of the slice and what it is now."""
        elements = int(torch.count_nonzero(as_integers(before_N) != as_integers(after_N)))
        squares = squares_by_part(after_N.double() - before_N.double(), [part.elements for part in where.parts])
        return cls(elements, tuple(squares), struck)


def checked(returned: Any, model: str, where: Slice) -> Changed:
    """What `change` of the fault model so named returned for a slice; an error names it where it cannot be true."""
    must = f"fault model {model}: change() must return paftbench.faults.Changed(elements, squares)"
    if not isinstance(returned, Changed):
        raise TypeError(f"{must}, got {returned!r}")
    struck = where.elements if returned.struck is None else returned.struck
    for field, value, most in (("struck", struck, where.elements), ("elements", returned.elements, struck)):
        if type(value) is not int or not 0 <= value <= most:
            raise ValueError(f"{must} with {field} (a count) a whole number within [0, {most}], got {value!r}")
    if not isinstance(returned.squares, tuple):
        raise TypeError(f"{must} with squares (of the change, summed by part) a tuple, got {returned.squares!r}")
    for square in returned.squares:
        # Infinite and NaN are the truth where the gradient is not finite.
        if not isinstance(square, Real) or square < 0:
            raise ValueError(f"{must} with squares (of the change, summed by part) >= 0, got {square!r}")
    return returned
