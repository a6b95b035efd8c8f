"""The values that `check` reads from one run, by name; `MEASURES` in `records/expectation.py` says what each means."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import isfinite
from operator import attrgetter
from typing import Final, Literal

from paftbench.analysis.cells import NO_GAP, gap_closed, overhead
from paftbench.analysis.cost import extra_share
from paftbench.analysis.quality import quality, quality_lost
from paftbench.analysis.runs import VIEWS, Run, Sweep, View
from paftbench.gate.rule import SeedValues, by_seed
from paftbench.records.expectation import MEASURES

LEARNT: Final = ("masked", "degraded")  # outcomes of a run by which others can be judged
HARMLESS: Final = "the fault does no harm beyond the tolerance, so there is nothing to close"
NO_STRIKE: Final = "drew no strike: more steps or a higher degree would"
NO_CHANGE: Final = "has strikes of which none changed a bit: a higher degree would"
UNTIMED: Final = "is timed only under torchrun, a process per rank, and not with exact"


@dataclass(frozen=True, kw_only=True)
class Absent:
    """Why a run has no number: it `broke`, it is not to blame (`unknown`), or the value does `not apply`.

    `counts` is what a quality of a run that broke counts as in the mean; None for other values.
    """

    why: Literal["broke", "unknown", "not apply"]
    reason: str
    counts: float | None = None


Reader = float | Absent


def sample_of(name: str, sweep: Sweep, runs: tuple[Run, ...]) -> SeedValues:
    """The numbers of a value over runs."""
    readings = [(run, reading_of(name, sweep, run)) for run in runs]
    counted = [(run.sample, value.counts if isinstance(value, Absent) else value) for run, value in readings]
    numbers = [(seed, value) for seed, value in counted if value is not None]

    def reasons(why: str) -> tuple[str, ...]:
        absent = ((run.sample, value) for run, value in readings if isinstance(value, Absent))
        return by_seed((seed, value.reason) for seed, value in absent if value.why == why)

    return SeedValues(
        seeds=tuple(seed for seed, _ in numbers),
        values=tuple(value for _, value in numbers),
        broken=reasons("broke"),
        unknown=reasons("unknown"),
        left_out=_joined(reasons("not apply"), len(runs)),
    )


def reading_of(name: str, sweep: Sweep, run: Run) -> Reader:
    """One run's number, or why it has none."""
    measure = MEASURES[name]
    why = unusable(run)
    if why is None and name != "strikes" and (spared := unharmed(run)):
        why = Absent(why="unknown", reason=spared)
    if why is None and measure.quality and run.broke_down:
        why = Absent(why="broke", reason=broke(run))
    if why is not None and not (why.why == "broke" and measure.quality):
        return why
    if measure.golden and (missing := without_golden(sweep, run)) is not None:
        return why or missing
    value = READERS[name](sweep, run)
    if isinstance(value, float) and not isfinite(value):
        return why or Absent(why="broke", reason=f"has {name} {value}")
    return value if why is None else replace(why, counts=value if isinstance(value, float) else None)


def unusable(run: Run) -> Absent | None:
    """Why nothing at all can be read from a run; None where it can."""
    if run.result is None:
        return Absent(why="unknown", reason="has not run")
    if run.outcome == "error":
        return Absent(why="unknown", reason="ended in error")
    if run.outcome in ("crashed", "hung"):
        return Absent(why="broke", reason=broke(run))
    return None


def unharmed(run: Run) -> str:
    """Why the faults of a run say nothing of how it stands them; empty where they changed something."""
    if run.unstruck:
        return NO_STRIKE
    return NO_CHANGE if run.faulty and run.found.strikes.changed == 0 else ""


def broke(run: Run) -> str:
    """How a run broke down, with the last line of its reason."""
    lines = (run.found.reason or "").strip().splitlines()
    return f"{'was ' if run.outcome == 'nonfinite' else ''}{run.outcome}{': ' + lines[-1] if lines else ''}"


def without_golden(sweep: Sweep, run: Run) -> Absent | None:
    """Why a run cannot be compared with its golden run; None where it can."""
    golden = sweep.golden(run)
    if golden is None or golden.result is None:
        return Absent(why="unknown", reason="has no golden run")
    if golden.outcome not in LEARNT:
        return Absent(why="unknown", reason=f"has a golden run that ended in {golden.outcome}")
    return None


def _lost(sweep: Sweep, run: Run) -> Reader:
    golden = sweep.golden(run)
    lost = None if golden is None else quality_lost(sweep, run, golden, run.judge)
    return _or_unknown(lost, "has no quality")


def _gap(sweep: Sweep, run: Run) -> Reader:
    ddp = sweep.ddp(run)
    if ddp is None or ddp.result is None or ddp.outcome == "error":
        how = "was not run" if ddp is None or ddp.result is None else "ended in error"
        return Absent(why="unknown", reason=f"has no gap to close: plain DDP {how}; hold quality_lost instead")
    closed = gap_closed(sweep, run, run.judge)
    if closed == NO_GAP:
        return Absent(why="not apply", reason="no gap")
    return _or_unknown(closed if isinstance(closed, float) else None, "has no gap")


def _overhead(sweep: Sweep, run: Run) -> Reader:
    return _or_unknown(overhead(sweep, run), f"has no overhead: a step {UNTIMED}")


def _identical(_: Sweep, run: Run) -> Reader:
    same = run.found.bitwise_identical
    return _or_unknown(None if same is None else float(same), "was not compared with golden")


def _recorded(path: str) -> Callable[[Sweep, Run], Reader]:
    return lambda _, run: _or_unknown(attrgetter(path)(run.found), f"has no {path.replace('.', ' ')}")


def _quality(view: View) -> Callable[[Sweep, Run], Reader]:
    return lambda sweep, run: _or_unknown(quality(sweep, run, view), "has no quality")


def _or_unknown(value: float | None, otherwise: str) -> Reader:
    return Absent(why="unknown", reason=otherwise) if value is None else float(value)


def _joined(reasons: tuple[str, ...], runs: int) -> tuple[str, ...]:
    """Runs without a gap in one sentence: it is the fault's doing, not that of a single run."""
    if not reasons:
        return ()
    return (f"no gap in {len(reasons)} of {runs} runs: {HARMLESS}",)


READERS: Final[Mapping[str, Callable[[Sweep, Run], Reader]]] = {
    "quality_lost": _lost,
    "gap_closed": _gap,
    "bitwise_identical": _identical,
    "overhead": _overhead,
    "extra_bytes": lambda _, run: _or_unknown(extra_share(run), "has no count of bytes"),
    **{view: _quality(view) for view in VIEWS},
    "divergence": _recorded("divergence.final"),
    "divergence_max": _recorded("divergence.max"),
    "strikes": _recorded("strikes.drawn"),
    "nsr": _recorded("nsr.median"),
    "nsr_max": _recorded("nsr.max"),
    "syncs": _recorded("mitigation.syncs"),
}
