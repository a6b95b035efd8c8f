"""What the built-in fault models are called; noise first, which tells most of a sweep."""

from typing import Final

from paftbench.looks.look import Look

GAUSSIAN_NOISE: Final = Look(title="Gaussian noise", order=1, std_unit="std")
BIT_FLIP: Final = Look(title="bit flip", order=2)
STALE_SHARD: Final = Look(title="stale shard", order=3)
