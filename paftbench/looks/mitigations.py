"""The looks of the built-in mitigations."""

from typing import Final

from paftbench.looks.look import Look

PAFT_SYNC: Final = Look(title="PAFT-Sync", order=1, colour="blue", periodic=True)
PAFT_DYN: Final = Look(title="PAFT-Dyn", order=2, colour="orange")
CLIP_VALUE: Final = Look(title="clip", order=3, colour="green")
REGATHER: Final = Look(title="averaging limit", order=9)
