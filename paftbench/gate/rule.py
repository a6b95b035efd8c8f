"""The one rule by which a number of a few runs holds a declared bound, breaks it, or cannot tell.

The bound is an engineering one, written down in the experiment; it is no p-value. By INTERFACE's statistics fewer than
3 seeds give no claim, 3 or 4 the range of the runs, 5 and more the paired t interval of their mean.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import isfinite, sqrt
from statistics import stdev

from paftbench.analysis.stats import CONFIDENCE, INTERVAL, Summary, claim_of, summarise, t_quantile
from paftbench.analysis.text import number
from paftbench.gate.finding import Verdict
from paftbench.records.seeds import Seed

ROUNDING = 1e-9  # of a bound: a difference of two decimal fractions misses its exact value by less
ZERO = 1e-12  # what rounding makes of sums that are 0; one bit of a small weight makes a divergence of more
MANY_SEEDS = 200  # more than anybody would add to a gate
NAMED = 5  # seeds that a reason lists
Z95 = 1.96  # a normal mean lies within so many of its standard errors with 95 %
SPREADS = {"none": "", "range": "range", "interval": INTERVAL}


@dataclass(frozen=True, kw_only=True)
class Bound:
    """At least one side; a side that is None does not bind. `called` is what a user would change; empty: nothing."""

    at_least: float | None = None
    at_most: float | None = None
    called: str = "bound"

    def holds(self, value: float) -> bool:
        """Whether a number lies within; on the bound is within."""
        above = self.at_least is None or value >= self.at_least - _slack(self.at_least)
        return above and (self.at_most is None or value <= self.at_most + _slack(self.at_most))

    def broken_side(self, low: float, high: float) -> float:
        """The side beyond which low..high reaches; the farther one where it is both."""
        sides = []
        if self.at_least is not None:
            sides.append((self.at_least - low, self.at_least))
        if self.at_most is not None:
            sides.append((high - self.at_most, self.at_most))
        return max(sides)[1]

    @property
    def text(self) -> str:
        if self.at_least is not None and self.at_most is not None:
            return f"{self.at_least:g}..{self.at_most:g}"
        return f">= {self.at_least:g}" if self.at_least is not None else f"<= {self.at_most:g}"


@dataclass(frozen=True, kw_only=True)
class SeedValues:
    """One number per seed, and why other runs have none.

    `broken`: runs that broke where a number was expected, which is a failure; a quality counts them as chance among
    its `values`. `unknown`: runs without a number for which they are not to blame, which forbids a pass. `left_out`:
    runs to which the value does not apply.
    """

    seeds: tuple[Seed, ...] = ()
    values: tuple[float, ...] = ()
    broken: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Judged:
    """A verdict with the numbers that it rests on; `spread` is what the summary's low and high are."""

    verdict: Verdict
    reason: str
    summary: Summary
    spread: str

    @property
    def number(self) -> float | None:
        return self.summary.mean


def judge(sample: SeedValues, bound: Bound) -> Judged:
    """Pass iff the whole range or interval holds the bound; fail iff the mean does not, or a run broke.

    Everything else is inconclusive, and the reason says what would tell.
    """
    summary = summarise(sample.seeds, sample.values)
    verdict, reason = _verdict(sample, bound, summary)
    return Judged(verdict=verdict, reason=reason, summary=summary, spread=SPREADS[summary.claim])


def _verdict(sample: SeedValues, bound: Bound, summary: Summary) -> tuple[Verdict, str]:
    if sample.broken:
        return "fail", listed(sample.broken)
    mean = summary.mean
    if mean is None:
        return "inconclusive", listed(sample.unknown or sample.left_out) or "no run has this number"
    if not bound.holds(mean):
        return "fail", f"the mean {number(mean)} does not hold {bound.text}"
    if sample.unknown:
        return "inconclusive", listed(sample.unknown)
    also = f"; {listed(sample.left_out)}" if sample.left_out else ""
    if summary.low is None or summary.high is None:
        count = len(set(sample.seeds))
        return "inconclusive", few(count) + also
    if bound.holds(summary.low) and bound.holds(summary.high):
        return "pass", listed(sample.left_out)
    return "inconclusive", _resolution(sample, bound, mean, summary.low, summary.high) + also


def _resolution(sample: SeedValues, bound: Bound, mean: float, low: float, high: float) -> str:
    """How an inconclusive number could become one that tells: with how many seeds, or with which bound."""
    side = bound.broken_side(low, high)
    count = len(set(sample.seeds))
    kind = f"range of {count} seeds" if count < 5 else "interval"
    says = f"the mean {number(mean)} holds {bound.text}, but the {kind} {number(low)}..{number(high)} reaches beyond"
    seeds = seeds_to_tell(stdev(sample.values), abs(side - mean), count)
    ways = [f"about {seeds} seeds"] if seeds is not None else []
    ways += [f"a {bound.called} of {number(low if side == bound.at_least else high)}"] if bound.called else []
    return f"{says}; {' or '.join(ways)} would tell" if ways else f"{says}, and lies too close for more seeds to tell"


def seeds_to_tell(spread: float, room: float, seeds: int) -> int | None:
    """How many seeds it takes until a mean's t interval fits into `room`; None where it is more than anybody runs.

    `spread` is the standard deviation over seeds, `seeds` how many there are: the answer is at least 5, from which on
    intervals are given, and more than `seeds`.
    """
    if room <= 0 or not isfinite(spread):
        return None
    counts = range(max(5, seeds + 1), MANY_SEEDS + 1)
    return next((count for count in counts if _reach(count) * spread / sqrt(count) <= room), None)


def resolvable(spread: float, seeds: int) -> float:
    """The difference of two means of `seeds` independent runs each that their interval can tell from none."""
    return _reach(seeds) * spread * sqrt(2 / seeds)


def _reach(seeds: int) -> float:
    """Half an interval, in standard errors; of a range, that of normal means."""
    return t_quantile((1 + CONFIDENCE) / 2, seeds - 1) if claim_of(seeds) == "interval" else Z95


def _slack(bound: float) -> float:
    return max(ROUNDING * abs(bound), ZERO)


def few(seeds: int) -> str:
    """Why so few seeds say nothing."""
    return f"{seeds} seed{'' if seeds == 1 else 's'} with a number; fewer than 3 allow no claim"


def by_seed(reasons: Iterable[tuple[Seed, str]]) -> tuple[str, ...]:
    """(seed, reason) as `s1 crashed`, and where several seeds have the same reason, once for all of them."""
    groups: dict[str, list[str]] = {}
    for seed, reason in reasons:
        groups.setdefault(reason, []).append(f"s{seed}")
    return tuple(
        f"{seeds[0]} {reason}"
        if len(seeds) == 1
        else f"{', '.join(seeds[:NAMED])}{_and_more(len(seeds) - NAMED)}: {reason}"
        for reason, seeds in groups.items()
    )


def _and_more(count: int) -> str:
    return f" and {count} more" if count > 0 else ""


def listed(reasons: Sequence[str], most: int = 2) -> str:
    """The first reasons, and how many more there are."""
    more = len(reasons) - most
    return "; ".join(reasons[:most]) + (f"; and {more} more" if more > 0 else "")
