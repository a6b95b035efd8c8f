"""What a plugin says of its look."""

import logging
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Final

from paftbench.errors import Refused

GROUP: Final = "paftbench.looks"
COLOURS: Final = ("blue", "orange", "green", "brown", "violet", "olive", "slate")
_LAST: Final = 100.0  # in the order, of one that says nothing

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Look:
    """`title`: what people call it. `order`: its place in tables and legends, lower first. `colour`: one of `COLOURS`,
    or None for one that is free; plugins of one colour in one figure get shades of it.

    What closed forms ask, too. `std_unit`: of a fault model, the unit in which its degree is the std of independent
    Gaussian noise on every element. `periodic`: of a mitigation, that it averages replicas as `theory.drift` does with
    its fields `period`, `state` and `overlap`, and does nothing else.
    """

    title: str
    order: float = _LAST
    colour: str | None = None
    std_unit: str | None = None
    periodic: bool = False

    def __post_init__(self) -> None:
        if self.colour is not None and self.colour not in COLOURS:
            raise Refused(f"colour (of a plugin in figures) must be one of {', '.join(COLOURS)}, got {self.colour!r}")


def find_look(name: str) -> Look:
    """The look that a plugin's distribution registered; its name alone where there is none that can be used."""
    return _registered().get(name) or Look(title=name)


def unclaimed() -> list[str]:
    """The colours that no registered look asks for; all, where each is."""
    claimed = {look.colour for look in _registered().values()}
    return [colour for colour in COLOURS if colour not in claimed] or list(COLOURS)


@cache
def _registered() -> dict[str, Look]:
    """By plugin name; of two distributions with one name paftbench wins, then the first in the alphabet."""
    found: dict[str, Look] = {}
    for point in sorted(entry_points(group=GROUP), key=_precedence):
        try:
            look = point.load()
        except Exception as error:  # a broken look stands in nobody's way
            log.warning("paftbench: warning: look %r: %s: %s", point.name, type(error).__name__, error)
            continue
        if isinstance(look, Look):
            found.setdefault(point.name, look)
        else:
            log.warning("paftbench: warning: look %r: %s is no paftbench.looks.Look", point.name, point.value)
    return found


def _precedence(point: EntryPoint) -> tuple[bool, str]:
    name = point.dist.name if point.dist is not None else ""
    return name != "paftbench", name
