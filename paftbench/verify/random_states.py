"""The global random generators that a plugin must leave alone: torch's, NumPy's and Python's."""

import random
from typing import Any, cast

import numpy as np
import torch

States = dict[str, Any]


def states() -> States:
    """Where every global generator stands."""
    # As bytes and plain numbers, which can be compared; arrays and tensors give one answer an element.
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
