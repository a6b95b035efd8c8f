"""Whether a sweep agrees with the paper's claims: the word for each, and the numbers behind it.

By seeds as everywhere: fewer than 3 say nothing; with 3 or 4 every seed must lie on one side of zero; from 5 on the
95 % paired t interval of the mean must leave zero out. A mean difference of quality within the experiment's
tolerance is no effect. That there is no difference is not shown by noise that hides one: the whole range or interval
must lie within what counts as none, else it is undecided. The paper's numbers are rank 0's, so rank 0's metric
decides, and the others stand beside it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isnan
from pathlib import Path
from typing import Any, Literal

from paftbench.analysis.panels import Panel
from paftbench.analysis.runs import Sweep, View, load, samples_of
from paftbench.analysis.stats import summarise
from paftbench.errors import Refused
from paftbench.paper.claim import QUALITY, Claim
from paftbench.paper.claims import claims_of
from paftbench.paper.measured import VIEWS, values

Word = Literal[
    "same direction", "opposite", "no effect", "undecided", "not enough seeds", "not run", "wrong as printed",
    "reproduced", "not reproduced",
]  # fmt: skip
PaperScale = Literal["small", "paper"]
SCALES = ("small", "paper")
_SIGNS = {"more": 1, "less": -1}


@dataclass(frozen=True, kw_only=True)
class Reading:
    """One metric's difference over seeds; `sign` is None with too few of them, and where one is not a number."""

    mean: float | None
    low: float | None
    high: float | None
    seeds: int
    sign: int | None


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """What our runs say of a claim; `ours` is what ran, `agrees` None where nothing can be said.

    `same direction` and `opposite` are about the sign that the paper gives its difference; where it claims that there
    is none, `no effect` agrees with it, an effect is `opposite`, and seeds too far apart to tell are `undecided`, which
    does not agree. `reproduced` is only for runs at the paper's scale: no effect where the paper claims none, else the
    same direction, and the paper's difference lies in our range or interval or ours is at least half of it.
    """

    claim: Claim
    word: Word
    ours: str
    readings: Mapping[View, Reading]

    @property
    def reading(self) -> Reading:
        """Rank 0's."""
        return self.readings["rank0"]

    @property
    def agrees(self) -> bool | None:
        if self.word in ("not run", "not enough seeds"):
            return None
        if self.word == "no effect":
            return self.claim.expect == "none"
        return self.word in ("same direction", "reproduced")

    @property
    def dissenting(self) -> tuple[View, ...]:
        """The metrics that point elsewhere than rank 0's."""
        return tuple(view for view in VIEWS if self.readings[view].sign != self.reading.sign)


def verdicts(item: str, directory: Path, *, scale: str) -> list[Judgement]:
    """A verdict for every claim of an item, from the sweep in `directory`; without one, nothing has run.

    `ValueError` for an unknown item or scale, and for records of another schema.
    """
    if scale not in SCALES:
        raise Refused(f"scale must be one of {', '.join(SCALES)}, got {scale!r}")
    claims = claims_of(item, scale)
    sweep = load(directory) if any(Path(directory).glob("**/result.json")) else None
    ours = "" if sweep is None else setting_of(sweep)
    return [_verdict(claim, sweep, ours, scale) for claim in claims]


def setting_of(sweep: Sweep) -> str:
    """What ran: workloads, ranks, steps and seeds."""
    done = [run for run in sweep.selected if run.result is not None]
    names = dict.fromkeys(Panel(sweep=sweep, grid=run.grid, series={"": (run,)}).workload for run in done)
    sizes = sorted({run.trial.world_size for run in done})
    steps = sorted({run.trial.steps for run in done})
    seeds = len(samples_of(done))
    lengths = f", {_range(steps)} steps" if steps else ""
    return f"{' and '.join(names)}, {_range(sizes)} ranks{lengths}, {seeds} seed{'' if seeds == 1 else 's'}"


def read(seeds: Sequence[Any], differences: Sequence[float], tolerance: float = 0.0) -> Reading:
    """Mean, spread and sign of one difference per seed."""
    summary = summarise(seeds, differences)
    count = len(set(seeds))
    if summary.low is None or summary.high is None or summary.mean is None:
        return Reading(mean=summary.mean, low=None, high=None, seeds=count, sign=None)
    sign = 1 if summary.low > 0 else -1 if summary.high < 0 else 0
    return Reading(
        mean=summary.mean, low=summary.low, high=summary.high, seeds=count,
        sign=0 if abs(summary.mean) <= tolerance else sign,
    )  # fmt: skip


def word_of(claim: Claim, reading: Reading, scale: str, tolerance: float = 0.0) -> Word:
    """The verdict in words; `tolerance` is what counts as no difference of quality, in the claim's unit."""
    if reading.sign is None:
        if reading.mean is not None and isnan(reading.mean):
            return "undecided"
        return "not run" if reading.seeds == 0 else "not enough seeds"
    if claim.expect == "none":
        return _word_of_none(claim, reading, scale, tolerance)
    word: Word = (
        "no effect" if reading.sign == 0 else "same direction" if reading.sign == _SIGNS[claim.expect] else "opposite"
    )
    # The claim's sign is the printed one: a constant known to be wrong is expected to come out on the other side.
    if claim.wrong and word == "opposite":
        return "wrong as printed"
    if scale != "paper":
        return word
    return "reproduced" if word == "same direction" and _as_large(claim, reading) else "not reproduced"


def _word_of_none(claim: Claim, reading: Reading, scale: str, tolerance: float) -> Word:
    """Of a claim of no difference: shown by all of the range or interval, refuted by an effect, else undecided."""
    assert reading.mean is not None and reading.low is not None and reading.high is not None
    # Whichever is wider: the paper's single runs differ by the margin, and within the tolerance ours count as equal.
    bound = max(claim.margin, tolerance)
    if -bound <= reading.low and reading.high <= bound:
        return "reproduced" if scale == "paper" else "no effect"
    if reading.sign != 0 and abs(reading.mean) > bound:
        return "not reproduced" if scale == "paper" else "opposite"
    return "undecided"


def _as_large(claim: Claim, reading: Reading) -> bool:
    theirs = claim.difference
    if theirs is None:
        return True
    assert reading.mean is not None and reading.low is not None and reading.high is not None
    return reading.low <= theirs <= reading.high or abs(reading.mean) >= abs(theirs) / 2


def _verdict(claim: Claim, sweep: Sweep | None, ours: str, scale: str) -> Judgement:
    none = Reading(mean=None, low=None, high=None, seeds=0, sign=None)
    if claim.statistic == "arithmetic":
        return Judgement(claim=claim, word="wrong as printed", ours=ours, readings=dict.fromkeys(VIEWS, none))
    if sweep is None:
        return Judgement(claim=claim, word="not run", ours="", readings=dict.fromkeys(VIEWS, none))
    tolerance = 0.0
    if claim.statistic in QUALITY:
        units = 100.0 if claim.statistic == "accuracy" else 1.0
        tolerance = units * float(sweep.selected[0].planned.tolerance)
    found = values(sweep, claim)
    readings = {view: read(list(own), list(own.values()), tolerance) for view, own in found.items()}
    return Judgement(
        claim=claim, word=word_of(claim, readings["rank0"], scale, tolerance), ours=ours, readings=readings
    )


def _range(numbers: Sequence[int]) -> str:
    return str(numbers[0]) if len(numbers) == 1 else f"{numbers[0]} to {numbers[-1]}" if numbers else "no"
