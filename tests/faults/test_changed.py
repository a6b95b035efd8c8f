"""A dense fault says what it changed; what cannot be true, or is of the earlier contract, is told by name."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf, nan
from typing import Any, ClassVar

import pytest
import torch
from support.injecting import gradients, layout_of, strike
from torch import Tensor

from paftbench.errors import Refused
from paftbench.faults import Changed, DenseFault, Draws, Slice
from paftbench.faults.fault import Fault
from paftbench.ranks.sites import Site

SIZE = layout_of().size


@dataclass(frozen=True, kw_only=True)
class Says(DenseFault):
    """Changes nothing and returns what it is told to."""

    name = "says"
    units: ClassVar[Mapping[str, tuple[float, float]]] = {"on": (0.0, 1.0)}
    unit: str = "on"
    degree: float = 1.0
    said: Any = None

    def change(self, grad_N: Tensor, where: Slice, state: dict[str, Tensor], draws: Draws) -> Changed:
        return self.said  # type: ignore[no-any-return]


def struck(said: Any) -> None:
    strike([Fault(name="f", model=Says(said=said), site=Site.RESULT)], layout_of(), gradients(layout_of()))


@pytest.mark.parametrize(
    ("said", "got"),
    [
        (7, ", got 7$"),
        (None, ", got None$"),
        ((7, [1.0]), r", got \(7, \[1\.0\]\)$"),
        (Changed(-1, ()), rf" with elements .* within \[0, {SIZE}\], got -1$"),
        (Changed(SIZE + 1, ()), rf" with elements .* within \[0, {SIZE}\], got {SIZE + 1}$"),
        (Changed(nan, ()), " with elements .*, got nan$"),  # type: ignore[arg-type]
        (Changed(True, ()), " with elements .*, got True$"),
        (Changed(torch.tensor(3), ()), r" with elements .*, got tensor\(3\)$"),  # type: ignore[arg-type]
        (Changed(3, (), struck=2), r" with elements .* within \[0, 2\], got 3$"),
        (Changed(0, (), struck=inf), " with struck .*, got inf$"),  # type: ignore[arg-type]
        (Changed(0, (), struck=SIZE + 1), f" with struck .*, got {SIZE + 1}$"),
        (Changed(1, (1.0, -0.5)), r" with squares .*, got -0\.5$"),
        (Changed(1, ("1",)), " with squares .*, got '1'$"),  # type: ignore[arg-type]
        (Changed(1, 2.0), " with squares .*, got 2.0$"),  # type: ignore[arg-type]
    ],
)
def test_what_change_cannot_truly_return_is_an_error_that_names_the_model_and_what_to_return(
    said: Any, got: str
) -> None:
    must = r"^fault model says: change\(\) must return paftbench\.faults\.Changed\(elements, squares\)"
    with pytest.raises((TypeError, ValueError), match=must + got) as raised:
        struck(said)
    assert not isinstance(raised.value, Refused) and "\n" not in str(raised.value)


@pytest.mark.parametrize("squares", [(inf,), (nan,), (0, 2.5)])
def test_a_change_of_numbers_that_are_not_finite_has_no_finite_norm(squares: tuple[float, ...]) -> None:
    struck(Changed(SIZE, squares))


def test_between_counts_bits_and_sums_squares_part_by_part() -> None:
    layout = layout_of(torch.float32, {"a": (2,), "b": (3,)})
    (first, second) = (Slice.of(slot, slot.start, layout.size) for slot in layout.slots)
    where = Slice(start=0, offset=0, size=5, parts=first.parts + second.parts)
    before_N, after_N = torch.tensor([1.0, 2.0, 0.0, 3.0, 4.0]), torch.tensor([1.0, 4.0, -0.0, 3.0, 1.0])
    assert Changed.between(before_N, after_N, where) == Changed(3, (4.0, 9.0))
    assert Changed.between(before_N, before_N, where, struck=1) == Changed(0, (0.0, 0.0), struck=1)


@pytest.mark.parametrize("old", ["returns an int", "has events"])
def test_a_dense_fault_of_the_earlier_contract_is_refused_where_it_is_defined(old: str) -> None:
    def returns_int(self: Any, grad_N: Tensor, start: int, state: Any, draws: Draws) -> int:
        return grad_N.numel()

    def events(self: Any, n: int, draws: Draws) -> int:
        return 1

    own = {"change": returns_int} if old == "returns an int" else {"events": events}
    with pytest.raises(
        Refused, match=r"fault model Old .* must return paftbench\.faults\.Changed\(elements, squares\)"
    ):
        type("Old", (Says,), own)
