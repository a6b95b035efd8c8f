"""Which of our runs stand in which row of an item's panels, and which digitised figures beside them."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isclose

from paftbench.analysis.runs import Run, Sweep
from paftbench.paper.claim import DEGREE, Where, at_text, degree_text
from paftbench.paper.items import STATE_PARTS, Item
from paftbench.paper.measured import field, runs_of

DYNAMIC = ("paft", "paft_all")


@dataclass(frozen=True, kw_only=True)
class Series:
    """Our runs of a method at a degree; `degree` is None where the item has one alone."""

    method: str
    degree: float | None
    runs: tuple[Run, ...]


@dataclass(frozen=True, kw_only=True)
class Row:
    """A row of panels: which trials are ours, at which degree where it is one, and which digitised figures theirs."""

    theirs: str
    where: Where = ()
    degree: float | None = None
    stands_for: float | None = None
    figures: tuple[str, ...] = ()

    @property
    def ours(self) -> str:
        """The degree in words, where the row has one."""
        if self.degree is None or self.stands_for is None:
            return ""
        return f", std {at_text(self.degree, self.stands_for)}"


def rows_of(item: Item, sweep: Sweep) -> list[Row]:
    """One row, but for items of several settings, and for those of one degree that ours have a stand-in for."""
    if item.name == "optimizer_state":
        found = [
            Row(
                theirs=f"{part.setting}, std {degree_text(part.noise)}", degree=degree, stands_for=part.noise,
                figures=(part.figure,), where=(("workload.name", part.workload), (DEGREE, degree)),
            )
            for part in STATE_PARTS
            for degree in (part.noise, part.stand_in)
        ]  # fmt: skip
    elif len(item.world_sizes) > 1:
        model = item.setting.partition(f", {item.world_sizes[0]} and")[0]
        return [Row(theirs=f"{model}, {size} workers", where=(("world_size", size),)) for size in item.world_sizes]
    elif len(item.noise) > 1 or item.burst:
        return [Row(theirs=item.setting, figures=item.figures)]
    else:
        degrees = [*item.noise, *(ours for ours, _ in item.stand_ins)]
        theirs = f"{item.setting}, std {degree_text(item.noise[0])}"
        found = [
            Row(theirs=theirs, where=((DEGREE, degree),), degree=degree, stands_for=item.noise[0], figures=item.figures)
            for degree in degrees
        ]
    # Rows of which nothing ran are left out, unless that is all of them: then the first shows the paper's alone.
    ran = [row for row in found if any(runs_of(sweep, m, row.where) for m in item.methods if m != "golden")]
    return ran or found[:1]


def series_of(item: Item, sweep: Sweep, row: Row) -> list[Series]:
    """Our finished runs by method, golden first, and within it by rising degree where a row has several."""
    found = []
    for method in item.methods:
        by_degree: dict[float | None, list[Run]] = {}
        for run in runs_of(sweep, method, row.where):
            degree = None if row.degree is not None or item.burst else field(run.trial.fields, DEGREE)
            by_degree.setdefault(degree, []).append(run)
        ordered = sorted(by_degree, key=lambda degree: degree or 0.0)
        found += [Series(method=method, degree=degree, runs=tuple(by_degree[degree])) for degree in ordered]
    return found


def degrees_of(item: Item, series: Sequence[Series]) -> list[float]:
    """Ours and theirs, rising; none where the item has one alone."""
    known = list(item.noise) if len(item.noise) > 1 else []
    for own in series:
        if own.degree is not None and not any(isclose(own.degree, degree) for degree in known):
            known.append(own.degree)
    return sorted(known)
