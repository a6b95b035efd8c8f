"""Writes `reference/README.md` from `README.md.in`, every number out of the data: `python tools/quoted.py [--check]`.

The template (Jinja) asks for numbers by name: `run("core/resnet", "noise", "ddp", 0.03).mean`. Where the words of a
sentence rest on numbers, `claim("what it says", condition)` stands behind it. New data that no longer hold a claim stop
the rendering, and all such claims are named: rewrite those sentences. `--check` writes nothing, and fails too where the
page is not what the template gives.
"""

import re
import sys
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from math import floor, inf, isfinite, log10
from operator import attrgetter
from pathlib import Path
from statistics import median
from typing import Any, Final

from jinja2 import Environment, StrictUndefined

sys.path.insert(0, str(Path(__file__).resolve().parent))

from kept import ROOT, cells_of, decisions_of, sweep_of

from paftbench.analysis.cells import Cell, gap_over
from paftbench.analysis.quality import quality, quality_lost
from paftbench.analysis.runs import View
from paftbench.analysis.stats import Summary, mean_of, summarise
from paftbench.store.files import read_json, write_text

PAGE, TEMPLATE = ROOT / "README.md", ROOT / "README.md.in"
WIDTH: Final = 120
WITHIN: Final = 0.05  # of the injected noise: what counts as right in an estimate


class Untrue(ValueError):
    """Sentences that the data no longer hold."""


@dataclass(frozen=True, kw_only=True)
class Quoted:
    """A cell's numbers: of the view, the experiment's judge unless asked otherwise."""

    name: str
    cell: Cell
    view: View

    @property
    def over_seeds(self) -> Summary:
        runs = self.cell.done
        return summarise([run.sample for run in runs], [quality(sweep_of(self.name), run, self.view) for run in runs])

    @property
    def mean(self) -> float:
        return _known(self.over_seeds.mean)

    @property
    def least(self) -> float:
        return min(self.over_seeds.points)

    @property
    def most(self) -> float:
        return max(self.over_seeds.points)

    @property
    def lost(self) -> float:
        """How much worse than golden of the same seed, in the mean."""
        sweep = sweep_of(self.name)
        pairs = [(run, golden) for run in self.cell.done if (golden := sweep.golden(run)) is not None]
        return _known(mean_of([quality_lost(sweep, run, golden, self.view) for run, golden in pairs]))

    @property
    def closed(self) -> Summary:
        """The gap closed, in %; `ValueError` where there is none."""
        gap, summary = gap_over(sweep_of(self.name), self.cell.done, self.view)
        if not isinstance(gap, float):
            raise ValueError(f"{self.name}: {self.cell.text} has no gap to close")
        low, high = (None if bound is None else 100 * bound for bound in (summary.low, summary.high))
        return Summary(mean=100 * gap, low=low, high=high, points=summary.points, claim=summary.claim)

    @property
    def gap(self) -> float:
        return _known(self.closed.mean)

    @property
    def seeds(self) -> int:
        return self.cell.seeds

    def count(self, outcome: str) -> int:
        """How many runs ended so."""
        return self.cell.outcomes().get(outcome, 0)

    def all(self, outcome: str) -> bool:
        return self.count(outcome) == len(self.cell.runs) > 0

    @property
    def lost_model(self) -> int:
        """How many runs ended without a useful model on their worst rank."""
        return self.count("nonfinite") + self.count("failed_to_learn")

    def middle(self, *keys: str) -> float:
        """Mean over seeds of another number of the result."""
        return _known(mean_of([attrgetter(".".join(keys))(run.found) for run in self.cell.done]))


@dataclass(frozen=True, kw_only=True)
class Choices:
    """What a mitigation decided, in the order of `decisions.csv`: the numbers of the rows that have one."""

    rows: tuple[dict[str, str], ...]

    def of(self, column: str) -> list[float]:
        return [float(row[column]) for row in self.rows if row[column]]

    def middle(self, column: str) -> float:
        return float(median(self.of(column)))

    @property
    def ratios(self) -> list[float]:
        """Of the estimated to the injected noise."""
        return [float(row["sigma"]) / _degree(row) for row in self.rows if row["sigma"]]

    @property
    def outside(self) -> int:
        """Estimates that are off by more than 5 %."""
        return sum(not abs(ratio - 1) <= WITHIN for ratio in self.ratios)

    @property
    def worst(self) -> float:
        """The largest factor by which an estimate is off, either way."""
        return max(max(ratio, 1 / ratio) if ratio > 0 else inf for ratio in self.ratios)


def run(name: str, grid: str, mitigation: str, degree: float | None = None, **more: Any) -> Quoted:
    """The one cell of a sweep with these labels; `of`: its experiment, `view`: which quality. Errors name what is."""
    of, view = more.get("of"), more.get("view")
    own = [
        cell for cell in cells_of(name)
        if cell.grid == grid and cell.runs[0].mitigation == mitigation
        if degree is None or any(axis.endswith(".degree") and v == degree for axis, v in cell.labels.items())
        if of is None or cell.runs[0].planned.experiment == of
        if all(cell.labels.get(axis) == value for axis, value in more.get("labels", {}).items())
    ]  # fmt: skip
    if len(own) != 1:
        known = ", ".join(f"{cell.grid} {cell.text}" for cell in cells_of(name) if cell.grid == grid)
        raise LookupError(f"{name} has {len(own)} cells {grid} {mitigation} {degree or ''}; in the grid are: {known}")
    return Quoted(name=name, cell=own[0], view=view or own[0].runs[0].judge)


def choices(name: str, start: str, degree: float | None = None, *, first: int = 0, late: float = 0.0) -> Choices:
    """Decisions of the trials whose names start so; of each trial from the one numbered `first` on, from 0.

    `late`: only those after that share of the trial's steps.
    """
    steps = {run.name: run.trial.steps for run in sweep_of(name).selected}
    seen: dict[str, int] = {}
    found = []
    for row in decisions_of(name):
        number = seen[row["trial"]] = seen.get(row["trial"], -1) + 1
        if row["trial"].startswith(start) and number >= first and degree in (None, _degree(row)):
            if int(row["step"]) >= late * steps[row["trial"]]:
                found.append(row)
    if not found:
        raise LookupError(f"{name}: no decisions of {start} {degree or ''}")
    return Choices(rows=tuple(found))


def overhead(grid: str, mitigation: str) -> float:
    """Of the kept table, whose sweep had the logs of steps: a mean over seeds."""
    text = (ROOT / "core" / "overhead" / "table.txt").read_text(encoding="utf-8")
    (found,) = re.findall(rf"^{grid} +{mitigation} .* ([\d.]+)x$", text, re.M)
    return float(found)


def verdicts() -> dict[str, int]:
    """How often each word stands in the verdicts of the paper's items."""
    counts: dict[str, int] = {}
    for path in sorted((ROOT / "paper").glob("*-verdicts.txt")):
        for line in re.findall(r"^\d+ claims: (.*?)\.(?: |$)", path.read_text(encoding="utf-8"), re.M):
            for part in line.split(", "):
                word, _, count = part.rpartition(" ")
                counts[word] = counts.get(word, 0) + int(count)
    return counts


def printed(file: str, pattern: str) -> float:
    """A number of a kept text, by a pattern with one group."""
    found = re.search(pattern, (ROOT / file).read_text(encoding="utf-8"), re.M)
    if found is None:
        raise LookupError(f"{file} has no {pattern}")
    return float(found[1])


@dataclass(kw_only=True)
class Claims:
    """What the page's words rest on; `failed` are the names of those that do not hold."""

    failed: list[str] = field(default_factory=list)

    def __call__(self, name: str, holds: bool) -> str:
        if not holds:
            self.failed.append(name)
        return ""


def decimals(value: float, digits: int = 3) -> str:
    """`.983`, `2.667`; no zero before the point, as tables have it."""
    return re.sub(r"^(-?)0\.", r"\1.", f"{value:.{digits}f}")


def power(value: float) -> str:
    """`1e34`."""
    return f"1e{floor(log10(value))}" if isfinite(value) and value > 0 else f"{value:g}"


def between(values: list[float], show: Callable[[float], str] = "{:.0f}".format) -> str:
    """`40 to 69`, or one of them where they read alike."""
    low, high = show(min(values)), show(max(values))
    return low if low == high else f"{low} to {high}"


def listed(values: list[float], show: Callable[[float], str] = "{:.0f}".format) -> str:
    """`22, 12 and 7`."""
    *first, last = map(show, values)
    return f"{', '.join(first)} and {last}" if first else last


def spread(summary: Summary) -> str:
    """`94 (93 to 96)`: with the range or interval where there is one."""
    mean = f"{_known(summary.mean):.0f}"
    return mean if summary.low is None or summary.high is None else f"{mean} ({summary.low:.0f} to {summary.high:.0f})"


def render() -> str:
    """The page; `Untrue` names the claims that the data do not hold."""
    claims = Claims()
    environment = Environment(undefined=StrictUndefined, keep_trailing_newline=True, trim_blocks=True)
    environment.filters |= {"d": decimals, "power": power, "between": between, "listed": listed, "spread": spread}
    asked = {
        "run": run, "choices": choices, "overhead": overhead, "verdicts": verdicts, "printed": printed, "claim": claims,
        "d": decimals, "d2": partial(decimals, digits=2), "g": "{:g}".format,
        "attach": read_json(ROOT / "attach" / "cost.json"),
    }  # fmt: skip
    text = environment.from_string(TEMPLATE.read_text(encoding="utf-8")).render(asked)
    if claims.failed:
        raise Untrue("\n".join(f"no longer true of the data: {name}" for name in claims.failed))
    return _filled(text)


def _filled(text: str) -> str:
    """Paragraphs and points in lines of a page's width; tables as they are."""
    page, before = "", ""
    for block in re.split(r"\n{2,}|\n(?=\* |\|)", text.strip()):
        line = " ".join(block.split())
        kind = line[:1] if line.startswith(("|", "* ")) else ""
        own = block.rstrip() if kind == "|" or line.startswith("#") else _fill(line, "  " if kind else "")
        page += ("\n" if kind and kind == before else "\n\n" if page else "") + own
        before = kind
    return page + "\n"


def _fill(line: str, indent: str) -> str:
    return textwrap.fill(line, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def _known(value: float | None) -> float:
    assert value is not None
    return value


def _degree(row: dict[str, str]) -> float:
    return float(row["trial"].partition("degree=")[2].partition("/")[0])


def _lines(argv: list[str]) -> Iterator[str]:
    text = render()
    if "--check" not in argv:
        write_text(PAGE, text)
    elif PAGE.read_text(encoding="utf-8") != text:
        raise Untrue(f"{PAGE} is not what the data give: python tools/quoted.py")
    yield str(PAGE)


if __name__ == "__main__":
    try:
        print(*_lines(sys.argv[1:]), sep="\n")
    except (ValueError, LookupError) as error:
        sys.exit(f"quoted.py: {error}")
