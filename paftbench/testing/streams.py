"""The global random streams of torch, NumPy and Python, which training code draws from without saying so."""

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

from paftbench.faults.draws import seed_of


class Streams:
    """A rank's own global streams: where they stand while another rank of the process runs."""

    def __init__(self) -> None:
        self._numpy = np.random.MT19937(0)
        self.keep()

    def keep(self) -> None:
        """Note where the streams stand."""
        self._cpu = torch.get_rng_state()
        self._cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []
        self._python = random.getstate()

    def resume(self) -> None:
        """Have the process draw from here on. NumPy's stream is an object to swap; setting its state would cost more
        than all the others."""
        torch.set_rng_state(self._cpu)
        if self._cuda:
            torch.cuda.set_rng_state_all(self._cuda)
        np.random.mtrand.set_bit_generator(self._numpy)
        random.setstate(self._python)


@contextmanager
def streams_untouched() -> Iterator[None]:
    """Whatever is drawn or seeded inside, the process's streams go on afterwards as if it had not been."""
    outer = Streams()
    generator, state = np.random.mtrand.get_bit_generator(), np.random.get_state(legacy=False)
    try:
        yield
    finally:
        outer.resume()
        np.random.mtrand.set_bit_generator(generator)
        np.random.set_state(state)


def seed_streams(*key: int | str) -> None:
    """Seed every global stream from a key; equal keys give equal draws."""
    seed = seed_of(*key)
    torch.manual_seed(seed)
    np.random.seed(seed % 2**32)
    random.seed(seed)
