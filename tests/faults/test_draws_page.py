"""`docs/draws.md`: its recipe alone gives every strike that the injector made."""

import re
from typing import Any

import numpy as np
import pytest
import torch
from support.checkout import ROOT

from paftbench import specs
from paftbench.faults.fault import Fault
from paftbench.verify.striking import SHAPES, Struck, gradients, layout_of, strike
from paftbench.workloads.streams import Stream

PAGE = (ROOT / "docs" / "draws.md").read_text()
RECIPE: dict[str, Any] = {}
for block in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL):
    exec(compile(block, "docs/draws.md", "exec"), RECIPE)

SIZES = {name: int(np.prod(shape)) for name, shape in SHAPES.items()}
SEED, WORLD, STEPS = 11, 4, 12
Strike = tuple[int, int, str, int, int]


def injected(fault: Fault, *, attempt: int = 0) -> Struck:
    return strike([fault], layout_of(), gradients(layout_of(), steps=STEPS), seed=SEED, attempt=attempt)


def logged(struck: Struck) -> list[Strike]:
    return [(row["step"], row["rank"], row["parameter"], row["index"], row["bit"]) for row in struck.rows]


def derived(
    sizes: dict[str, int], degree: float, bits: tuple[int, int], *, attempt: Any = 0, **whom: Any
) -> list[Strike]:
    """Every strike of a fault named `flips`, from the page's code."""
    found: list[Strike] = []
    for step in range(STEPS):
        for rank in RECIPE["struck_ranks"](SEED, "flips", attempt, step, WORLD, **whom):
            drawn = RECIPE["flips"](SEED, "flips", attempt, step, rank, sizes, degree, *bits)
            found += [(step, rank, *one) for one in drawn]
    return found


def test_a_thousand_strikes_come_out_of_the_recipe_alone() -> None:
    struck = injected(specs.fault("bit_flip", name="flips", degree=0.02))
    expected = derived(SIZES, 0.02, (0, 32))
    assert len(expected) >= 1000 and logged(struck) == expected


def test_the_recipe_holds_for_chosen_parameters_bits_ranks_and_steps() -> None:
    fault = specs.fault(
        "bit_flip", name="flips", degree=0.2, bits="exponent", parameters=["*.bias", "second.*"],
        ranks={"random": 2}, schedule={"kind": "probability", "p": 0.5},
    )  # fmt: skip
    sizes = {name: size for name, size in SIZES.items() if name in ("first.bias", "second.weight")}
    expected = derived(sizes, 0.2, (23, 31), p=0.5, count=2)
    steps = {strike[0] for strike in expected}
    assert 1 < len(steps) < STEPS and logged(injected(fault)) == expected


@pytest.mark.parametrize(("persistence", "attempt"), [("transient", 3), ("permanent", "permanent")])
def test_the_recipe_holds_for_repetitions(persistence: str, attempt: Any) -> None:
    fault = specs.fault("bit_flip", name="flips", degree=0.01, persistence=persistence)
    assert logged(injected(fault, attempt=3)) == derived(SIZES, 0.01, (0, 32), attempt=attempt)


def test_the_recipe_holds_for_a_kind_of_optimizer_state() -> None:
    struck = injected(specs.fault("bit_flip", name="flips", degree=0.01, site="optimizer_state"))
    kind = ("momentum_buffer",)
    expected = [
        (step, rank, f"{name}:{kind[0]}", *one)
        for step in range(STEPS)
        for rank in range(WORLD)
        for name, *one in RECIPE["flips"](SEED, "flips", 0, step, rank, SIZES, 0.01, 0, 32, kind=kind)
    ]
    assert expected and logged(struck) == expected


def test_the_recipe_gives_the_noise_on_every_parameter() -> None:
    zeros = torch.zeros((2, WORLD, layout_of().size))
    struck = strike([specs.fault("gaussian_noise", name="hum", degree=0.25)], layout_of(), zeros, seed=SEED)
    for slot in layout_of().slots:
        for step in range(2):
            for rank in range(WORLD):
                expected = RECIPE["noise"](SEED, "hum", 0, step, rank, slot.name, slot.stop - slot.start, 0.25)
                assert torch.equal(struck.after_TWN[step, rank, slot.start : slot.stop], expected)


def test_the_pages_test_vectors_are_right() -> None:
    rows = re.findall(r"^\| `(\(.*\))` \| (\d+) \|$", PAGE, re.MULTILINE)
    assert len(rows) == 5
    for key, seed in rows:
        assert RECIPE["seed_of"](*eval(key)) == int(seed)
    key, numbers = re.findall(r"The stream of `(\(.*\))` begins, as `integers\(0, 1000, 5\)`, with ([\d, ]+)\.", PAGE)[
        0
    ]
    assert RECIPE["stream"](*eval(key)).integers(0, 1000, 5).tolist() == [int(number) for number in numbers.split(",")]


def test_the_page_gives_the_order_of_the_data() -> None:
    items, batch, seed = 50, 8, 3
    row = np.concatenate([RECIPE["stream"]("data", seed, epoch).permutation(items) for epoch in range(4)])
    for step in range(5):
        for rank in range(WORLD):
            first = step * WORLD * batch + rank * batch
            own = Stream(items=items, rank=rank, world_size=WORLD, batch=batch, seed=seed).indices(step)
            assert own.tolist() == row[first : first + batch].tolist()
