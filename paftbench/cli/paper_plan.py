"""What `paftbench paper -n` prints: every trial of the items, what each item takes, and what is not here."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from paftbench.analysis.text import size
from paftbench.cli import sweeping
from paftbench.cli.options import columns, duration, say
from paftbench.cli.sweeping import Listed
from paftbench.experiment import load
from paftbench.experiment.forecast import Forecast
from paftbench.experiment.needs import ASSUMED, TFLOPS, absent_data, needs_of
from paftbench.experiment.plan import ABSENT
from paftbench.store.directory import Planned
from paftbench.sweep.sharing import shareable, siblings_of
from paftbench.sweep.sweep import Policy

UNKNOWN = "-"
Row = tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class PlanPart:
    """The trials of one item; `shared` are ids that another item has done, or runs before."""

    item: str
    lines: Sequence[Listed]
    shared: frozenset[str]

    @property
    def todo(self) -> list[Listed]:
        """What is left to run for this item."""
        return [line for line in self.lines if line.runs and line.planned.id not in self.shared]

    def rows(self) -> Iterator[Row]:
        for line in self.lines:
            own, name, state, *rest = line.row()
            # Without the data there is no fingerprint, and without that no id to keep.
            known = line.planned.data.sha256 != ABSENT
            yield self.item, own if known else UNKNOWN, name, "shared" if self._taken(line) else state, *rest

    def counts(self) -> Row:
        done = sum(not line.runs for line in self.lines)
        taken = sum(self._taken(line) for line in self.lines)
        return self.item, str(len(self.lines)), str(done), str(taken), str(len(self.todo))

    def _taken(self, line: Listed) -> bool:
        return line.runs and line.planned.id in self.shared


def show(
    root: Path, plans: Mapping[str, Sequence[Planned]], scale: str, policy: Policy, jobs: int, tflops: float | None
) -> None:
    """Print the plan; nothing is written, and data that are not here are named, not missed."""
    parts = list(_parts(root, plans, policy))
    for planned in plans.values():
        sweeping.warn(planned)
    say(columns([("item", *Listed.COLUMNS), *(row for part in parts for row in part.rows())]))
    say("")
    say(_small(parts, jobs) if scale == "small" else _large(parts, tflops))


def _parts(root: Path, plans: Mapping[str, Sequence[Planned]], policy: Policy) -> Iterator[PlanPart]:
    records = {item: sweeping.records_of(root / item, planned) for item, planned in plans.items()}
    forecast = Forecast(root, [record for found in records.values() for record in found.values()])
    before: set[str] = set()
    for item, planned in plans.items():
        lines = sweeping.listed(planned, records[item], policy, forecast)
        siblings = [] if policy.force else siblings_of(root / item)
        beside = (other.id for other, _ in shareable(root / item, planned, policy, siblings))
        yield PlanPart(item=item, lines=lines, shared=frozenset(before.union(beside)))
        before.update(line.planned.id for line in lines)


def _small(parts: Sequence[PlanPart], jobs: int) -> str:
    rows: list[Row] = [("item", "trials", "done", "shared", "to run", "expected", "stated")]
    for part in parts:
        seconds = sweeping.seconds_of(part.todo, jobs)
        expected = UNKNOWN if seconds is None and part.todo else duration(seconds or 0)
        rows.append((*part.counts(), expected, load(f"paper/{part.item}").cost))
    return f"{columns(rows)}\n{sweeping.total(_all(parts), jobs)}"


def _large(parts: Sequence[PlanPart], tflops: float | None) -> str:
    rows: list[Row] = [("item", "trials", "done", "shared", "to run", "GPU-hours", "disk", "checkpoint")]
    rows += [(*part.counts(), *_needs([part], tflops)) for part in parts]
    planned = [line.planned for part in parts for line in part.lines]
    rows.append(("all", str(len(planned)), "", "", str(len(_all(parts))), *_needs(parts, tflops)))
    lines = [columns(rows), _assumptions(tflops, needs_of(planned).uncounted), *absent_data(planned)]
    return "\n".join(lines)


def _needs(parts: Sequence[PlanPart], tflops: float | None) -> Row:
    """GPU-hours of what is left to run, disk of it and of what is copied, the largest checkpoint of either."""
    todo = needs_of([line.planned for part in parts for line in part.todo], tflops or TFLOPS)
    kept = needs_of([line.planned for part in parts for line in part.lines if line.runs])
    hours = UNKNOWN if todo.uncounted and not todo.gpu_hours else f"{todo.gpu_hours:.3g}"
    return hours, size(kept.disk), size(todo.checkpoint) if todo.checkpoint else UNKNOWN


def _assumptions(tflops: float | None, uncounted: int) -> str:
    speed = f"{tflops:g} TFLOP/s, as given" if tflops else f"{TFLOPS:g} TFLOP/s, {ASSUMED}; --tflops for your GPU"
    text = (
        f"GPU-hours: an estimate, at {speed}.\nCounted: the multiply-adds of a forward for each item trained on, times"
        " 3 for forward and backward, and of the evaluations. Not counted: averaging, noise, the optimizer, waiting."
        "\nDisk: records, by rows as measured; checkpoint: the most that one unfinished trial takes besides."
    )
    return text + (f"\n{uncounted} trials are of workloads that do not say what they cost." if uncounted else "")


def _all(parts: Sequence[PlanPart]) -> list[Listed]:
    return [line for part in parts for line in part.todo]
