"""Which run of a cell a trial is: its seed, and the faults' where it is another. Importable without torch."""

import re
from dataclasses import dataclass
from functools import total_ordering

_TEXT = re.compile(r"([0-9]{1,19})(?:-f([0-9]{1,19}))?")


@total_ordering
@dataclass(frozen=True)
class Seed:
    """`seed` is that of initial weights, data and dropout, `fault_seed` the faults'; None: what the trial says.

    Runs of equal `Seed` in different cells are paired; the golden run of a run is that of the same `seed`.
    """

    seed: int
    fault_seed: int | None = None

    def __str__(self) -> str:
        """`0`, `0-f100`: what follows the `s` of a trial's name."""
        return str(self.seed) if self.fault_seed in (None, self.seed) else f"{self.seed}-f{self.fault_seed}"

    def __lt__(self, other: "Seed") -> bool:
        return self._place < other._place

    @property
    def _place(self) -> tuple[int, int]:
        return self.seed, -1 if self.fault_seed is None else self.fault_seed


def parse_seed(text: str) -> Seed | None:
    """The inverse of `str(seed)`; None for a text that is none."""
    found = _TEXT.fullmatch(text)
    return Seed(int(found[1]), None if found[2] is None else int(found[2])) if found else None
