"""The states of the generators that a training draws from, as a checkpoint can hold them."""

import random
from typing import Any

import numpy as np
import torch


def random_states() -> dict[str, Any]:
    """Of this process: Python's, NumPy's, torch's, and those of its accelerators."""
    return {
        "python": random.getstate(),
        "numpy": np.random.get_state(),
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
    }


def set_random_states(states: dict[str, Any]) -> None:
    """The inverse of `random_states`; accelerators that are not there are left out."""
    random.setstate(states["python"])
    np.random.set_state(states["numpy"])
    torch.set_rng_state(states["torch"])
    for number, state in enumerate(states["cuda"][: torch.cuda.device_count()]):
        torch.cuda.set_rng_state(state, number)
