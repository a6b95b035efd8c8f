"""How mitigations are drawn and called: colours that colour-blind readers can tell apart, a line style beside each."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final
from zlib import crc32

from paftbench.analysis.panels import Panel, plain, stack_of
from paftbench.looks import find_look, unclaimed
from paftbench.records.roles import AVERAGING_LIMIT, DDP, GOLDEN

# Okabe and Ito's palette (https://jfly.uni-koeln.de/color/), without its yellow, which is too light for lines.
VERMILLION, BLUE, GREEN, PURPLE = "#D55E00", "#0072B2", "#009E73", "#CC79A7"
ORANGE, SKY, BLACK, GREY = "#E69F00", "#56B4E9", "#000000", "#6b6b6b"
NAVY = "#0b2f4f"
INK = "#333333"


@dataclass(frozen=True, kw_only=True)
class SeriesStyle:
    """How a series is drawn and called."""

    label: str
    color: str
    line: Any = "-"
    marker: str = "o"
    order: float = 3.0

    def of_line(self) -> dict[str, Any]:
        return {"color": self.color, "linestyle": self.line, "zorder": self.order}


ROLES: Final[Mapping[str, SeriesStyle]] = {
    GOLDEN: SeriesStyle(label="golden (no faults)", color=BLACK, line=(0, (4, 2.5)), marker="_", order=7),
    DDP: SeriesStyle(label="plain DDP", color=VERMILLION, marker="X", order=3),
    AVERAGING_LIMIT: SeriesStyle(label="averaging limit", color=PURPLE, line=(0, (1.2, 1.2)), marker="^", order=6),
}
_DASHED, _DOTTED = (0, (7, 1.2)), (0, (6, 1, 1.5, 1))
_BY_COLOUR: Final = {
    "blue": SeriesStyle(label="", color=BLUE, marker="o", order=4),
    "orange": SeriesStyle(label="", color=ORANGE, line=_DASHED, marker="s", order=5),
    "green": SeriesStyle(label="", color=GREEN, line=_DOTTED, marker="D", order=5),
    "brown": SeriesStyle(label="", color="#8c510a", marker="<"),
    "violet": SeriesStyle(label="", color="#5e3c99", marker=">"),
    "olive": SeriesStyle(label="", color="#808000", marker="P"),
    "slate": SeriesStyle(label="", color="#5b7083", marker="h"),
}
# The plain shade, then others of it, for several series of one plugin: between them are steps in lightness.
_SHADES: Final = {
    "blue": (BLUE, SKY, NAVY), "orange": (ORANGE, "#f6cd7a", "#8a5a00"), "green": (GREEN, "#7fd1b9", "#00523b"),
    "brown": ("#8c510a", "#c99a5b", "#4f2d05"), "violet": ("#5e3c99", "#a48ccb", "#331d59"),
    "olive": ("#808000", "#bdbd4d", "#45450a"), "slate": ("#5b7083", "#9fb1c1", "#2e3a45"),
}  # fmt: skip
_SHADE_MARKERS: Final = (None, "v", "p", "*", "d", "H", "^", "8", "P", "<", ">", "X")


def styles_of(panels: Sequence[Panel]) -> dict[str, SeriesStyle]:
    """A style per mitigation label: golden first, plain DDP, the mitigations by their plugins' looks, the limit last.

    A series has the colour of its first mitigation; several of one colour have shades of it.
    """
    stacks: dict[str, tuple[str, ...]] = {}
    for panel in panels:
        for name, runs in panel.series.items():
            stacks[name] = stacks.get(name) or (stack_of(runs[0]) if runs else ())
    others = sorted((name for name in stacks if name not in ROLES), key=lambda name: _turn(name, stacks[name]))
    # Of all the sweep's, though a figure may show some: each has the same colour in every figure.
    every = [stack[0] for panel in panels[:1] for run in panel.sweep.everything if (stack := stack_of(run))]
    colours = _colours(dict.fromkeys((*every, *((stacks[name] or (name,))[0] for name in others))))
    families: dict[str, list[str]] = {}
    for name in others:
        families.setdefault(colours[(stacks[name] or (name,))[0]], []).append(name)
    drawn = {name: _styled(name, stacks[name], colour, group) for colour, group in families.items() for name in group}
    roles = {name: ROLES[name] for name in ROLES if name in stacks}
    limit = {AVERAGING_LIMIT: roles.pop(AVERAGING_LIMIT)} if AVERAGING_LIMIT in roles else {}
    return roles | {name: drawn[name] for name in others} | limit


def styled(label: str, colour: str, shade: int = 0) -> SeriesStyle:
    """A series in one of `COLOURS`: the plain shade (0), another of it or, past the last, in dashes."""
    base, shades = _BY_COLOUR[colour], _SHADES[colour]
    marker = _SHADE_MARKERS[shade % len(_SHADE_MARKERS)] or base.marker
    again = shade // len(shades)
    line = (0, (0.8 + 1.6 * (again - 1), 1.2)) if again else base.line
    return replace(base, label=label, color=shades[shade % len(shades)], marker=marker, line=line)


def _styled(name: str, stack: Sequence[str], colour: str, group: Sequence[str]) -> SeriesStyle:
    """Two of a colour are plain and dark, three light, plain and dark; the plugin's namesake is the plain one."""
    shades = list({2: (0, 2), 3: (1, 0, 2)}.get(len(group), range(len(group))))
    if stack and stack[0] in group:
        shades.remove(0)
        shades.insert(group.index(stack[0]), 0)
    shade = shades[group.index(name)]
    return styled(_called(name, stack), colour, shade)


def _colours(plugins: Mapping[str, None]) -> dict[str, str]:
    """A colour for each plugin: the one it asks for, else a free one, begun with at a place that its name decides."""
    found = {name: colour for name in plugins if (colour := find_look(name).colour) is not None}
    for name in sorted(set(plugins) - set(found)):
        free = [colour for colour in unclaimed() if colour not in found.values()] or unclaimed()
        found[name] = free[crc32(name.encode()) % len(free)]
    return found


def _turn(name: str, stack: Sequence[str]) -> tuple[Any, ...]:
    """By the plugins' order; labels of one plugin as people count: H5 before H10."""
    natural = [(int(part), "") if part.isdigit() else (0, part) for part in re.split(r"(\d+)", name)]
    return find_look((stack or (name,))[0]).order, len(stack), natural


def _called(name: str, stack: Sequence[str]) -> str:
    """A label in words, in which the names of its plugins are their titles: `clip_paft_sync` is clip + PAFT-Sync."""
    titles = {plugin: find_look(plugin).title for plugin in stack or (name,)}
    for plugin in sorted(titles, key=len, reverse=True):
        name = name.replace(plugin, titles[plugin])
    words = plain(name.replace("_", " ").replace("+", " "))
    several = [plain(title) for title in titles.values()]
    return " + ".join(several) if words == " ".join(several) else words
