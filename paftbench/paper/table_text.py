"""A printed table beside ours, as text."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from paftbench.analysis.quality import quality
from paftbench.analysis.runs import Run, Sweep
from paftbench.analysis.text import draw
from paftbench.paper.claim import DEGREE, Where, degree_text
from paftbench.paper.items import Item
from paftbench.paper.judging import setting_of
from paftbench.paper.measured import overhead_of, runs_of
from paftbench.paper.overhead_claims import overhead as printed_overhead
from paftbench.paper.published import SOURCE, printed

_NAMES = {
    "golden": "golden", "ddp": "plain DDP", "paft_sync": "PAFT-Sync", "paft_sync_H5": "Sync, H = 5",
    "paft_sync_H10": "Sync, H = 10", "paft_sync_H50": "Sync, H = 50", "paft": "PAFT",
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class PrintedColumn:
    """A column of the table: which trials are ours, and what the paper prints for a method; it may print nothing."""

    name: str
    where: Where
    theirs: Callable[[str], float] | None


def table_text(item: Item, sweep: Sweep, width: int = 120) -> str:
    """Methods down, degrees or workers across: ours (mean, and least..most over seeds) above theirs."""
    cost = item.kind == "overhead"
    methods = [method for method in item.methods if not (cost and method == "ddp")]
    measure: Callable[[Run], float | None] = partial(overhead_of if cost else _quality, sweep)
    what = "overhead over plain DDP in %" if cost else "test accuracy in %, rank 0"
    parts = [f"{item.title}, {what}.\nPaper: {item.setting}, one seed.\nOurs: {setting_of(sweep)}."]
    for head, columns in (_costs(item, sweep) if cost else _qualities(item, sweep)).items():
        cells: dict[str, list[str]] = {
            head: [name for method in methods for name in (_NAMES[method], "")],
            " ": ["ours", "paper"] * len(methods),
        }
        for column in columns:
            cells[column.name] = [
                text for method in methods for text in (_ours(sweep, method, column, measure), _theirs(method, column))
            ]
        sections = [method for method in methods for _ in range(2)]
        parts.append(draw(cells, sections=sections, width=width, left=(head, " ")))
    return "\n\n".join([*parts, f"Paper: {SOURCE}."])


def _qualities(item: Item, sweep: Sweep) -> dict[str, list[PrintedColumn]]:
    """Columns by number of workers: the paper's degrees, and those that ours has besides."""
    stand_ins = [ours for ours, _ in item.stand_ins if runs_of(sweep, "ddp", ((DEGREE, ours),))]
    table = item.table or 0
    return {
        f"{size} workers": [
            PrintedColumn(
                name=f"std {degree_text(degree)}", where=(("world_size", size), (DEGREE, degree)),
                theirs=partial(printed, table, world_size=size, noise_std=degree) if degree in item.noise else None,
            )
            for degree in sorted([*item.noise, *stand_ins])
        ]
        for size in item.world_sizes
    }  # fmt: skip


def _costs(item: Item, sweep: Sweep) -> dict[str, list[PrintedColumn]]:
    sizes: Sequence[int] = sorted({*item.world_sizes, *(run.trial.world_size for run in sweep.selected)})
    return {
        "workers": [
            PrintedColumn(
                name=str(size), where=(("world_size", size),),
                theirs=partial(printed_overhead, world_size=size) if size in item.world_sizes else None,
            )
            for size in sizes
        ]
    }  # fmt: skip


def _theirs(method: str, column: PrintedColumn) -> str:
    return "-" if column.theirs is None else f"{column.theirs(method):.1f}"


def _ours(sweep: Sweep, method: str, column: PrintedColumn, measure: Callable[[Run], float | None]) -> str:
    found = [measure(run) for run in runs_of(sweep, method, column.where)]
    values = [value for value in found if value is not None]
    if not values:
        return "-"
    mean = f"{sum(values) / len(values):.1f}"
    text = mean if len(values) == 1 else f"{mean} ({min(values):.1f}..{max(values):.1f})"
    return text if len(values) == len(found) else f"{text} ({len(values)}/{len(found)})"


def _quality(sweep: Sweep, run: Run) -> float | None:
    value = quality(sweep, run, "rank0")
    return None if value is None else 100 * value
