"""The global random generators that a plugin must leave alone: torch's, NumPy's and Python's."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import numpy as np
import torch

States = dict[str, Any]


def states() -> States:
    """Where every global generator stands."""
    name, words, *rest = cast(tuple[Any, ...], np.random.get_state(legacy=True))
    found: States = {
        "torch": torch.get_rng_state().numpy().tobytes(), "numpy.random": (name, words.tobytes(), *rest),
        "random": random.getstate(),
    }  # fmt: skip
    if torch.cuda.is_available():
        found["torch.cuda"] = [state.numpy().tobytes() for state in torch.cuda.get_rng_state_all()]
    return found


def moved(before: States, after: States) -> str:
    """The names of the generators that moved in between; empty where none did."""
    return " and ".join(name for name in before if before[name] != after[name])


def reseed(seed: int) -> None:
    """Put every global generator elsewhere."""
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


@contextmanager
def preserved() -> Iterator[None]:
    """Put every global generator back afterwards."""
    kept = random.getstate(), np.random.get_state(), torch.get_rng_state()
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []
    try:
        yield
    finally:
        random.setstate(kept[0])
        np.random.set_state(kept[1])
        torch.set_rng_state(kept[2])
        if cuda:
            torch.cuda.set_rng_state_all(cuda)
