"""Claims and verdicts as text."""

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from itertools import groupby
from math import isfinite
from textwrap import fill

from paftbench.analysis.runs import View
from paftbench.analysis.stats import INTERVAL
from paftbench.analysis.text import draw
from paftbench.paper.claim import QUALITY, Claim
from paftbench.paper.items import item_of
from paftbench.paper.judging import Judgement, Reading
from paftbench.paper.published import SOURCE

_UNITS = {"accuracy": "points of accuracy", "loss": "nats of loss saved", "overhead": "% of plain DDP's step"}
_NOTES = (
    f"Paper: {SOURCE}; one seed each, rank 0's replica; noise by the number that it prints as sigma squared and its"
    " code uses as std. Below its two numbers their difference, a gain where it is of quality.",
    "Ours: the mean over seeds of the difference within a seed, and its range (3 or 4 seeds) or"
    f" {INTERVAL} interval (5 or more). Rank 0's metric decides; ! marks another metric that points elsewhere. A run"
    " that broke down counts as the metric's chance.",
    "Where the paper's two numbers differ by no more than its single runs do, it claims no difference: `no effect"
    " (agrees)` where all of our range or interval lies within that or the tolerance, `opposite` where there is an"
    " effect, `undecided` where the seeds lie too far apart to tell.",
)


def render(verdicts: Sequence[Judgement], width: int = 120) -> str:
    """A table per item, and what the words mean."""
    if not verdicts:
        return "no claims"
    parts = [_section(list(group), width) for _, group in groupby(verdicts, key=lambda verdict: verdict.claim.item)]
    lines = [_summary(verdicts), *(fill(note, width) for note in _NOTES)]
    return "\n\n".join([*parts, "\n".join(lines)])


def _section(found: Sequence[Judgement], width: int) -> str:
    item = item_of(found[0].claim.item)
    ours = found[0].ours or "nothing has run"
    columns = {
        "claim": [verdict.claim.text for verdict in found],
        "paper": [_theirs(verdict.claim) for verdict in found],
        "rank 0": [_ours(verdict.claim, verdict.reading) for verdict in found],
        "worst rank": [_beside(verdict, "worst_rank") for verdict in found],
        "mean model": [_beside(verdict, "mean_model") for verdict in found],
        "n": [str(verdict.reading.seeds) if verdict.reading.seeds else "-" for verdict in found],
        "verdict": [_word(verdict) for verdict in found],
    }
    if not any(verdict.claim.statistic in QUALITY for verdict in found):
        del columns["worst rank"], columns["mean model"]
        columns["ours"] = columns.pop("rank 0")
        columns = {name: columns[name] for name in ("claim", "paper", "ours", "n", "verdict")}
    texts = [fill(f"{item.title}. Paper: {item.setting}. Ours: {ours}.", width)]
    texts.append(draw(columns, sections=[_place(verdict) for verdict in found], width=width, left=("claim", "verdict")))
    notes = [verdict.claim.note for verdict in found if verdict.claim.note]
    return "\n".join([*texts, *(fill(note, width) for note in dict.fromkeys(notes)), _unit(found)]).rstrip()


def _unit(found: Sequence[Judgement]) -> str:
    units = dict.fromkeys(_UNITS[v.claim.statistic] for v in found if v.claim.statistic in _UNITS)
    return f"Differences in {' or '.join(units)}." if units else ""


def _place(verdict: Judgement) -> object:
    """What changes where a rule is drawn: the setting, before the colon."""
    return verdict.claim.text.partition(":")[0] if verdict.claim.statistic in (*QUALITY, "overhead", "period") else ""


def _theirs(claim: Claim) -> str:
    left, right = claim.paper
    if left is None or right is None:
        return "-"
    if claim.statistic == "arithmetic":
        return f"{left:.1f}, table {right:.1f}"
    if claim.statistic == "period":
        return f"H = {left:g}"
    if claim.statistic == "constant":
        return f"{left:g}"
    digits = 3 if claim.statistic == "loss" else 1
    difference = _of(claim)(claim.difference or 0.0)
    if claim.statistic == "overhead" and claim.right == "ddp":
        return difference
    return f"{left:.{digits}f} vs {right:.{digits}f}\n{difference}"


def _ours(claim: Claim, reading: Reading, mark: str = "") -> str:
    """Mean and spread; of a number that is held against another, the number itself."""
    if reading.mean is None:
        return "-"
    show = _absolute(claim) if claim.statistic in ("period", "constant") else _of(claim)
    text = show(reading.mean) + mark
    if reading.low is None or reading.high is None or show(reading.low) == show(reading.high) == text:
        return text
    return f"{text}\n{show(reading.low)}..{show(reading.high)}"


def _absolute(claim: Claim) -> Callable[[float], str]:
    reference = claim.paper[1] or 0.0
    return lambda value: f"H = {value + reference:.3g}" if claim.statistic == "period" else f"{value + reference:.3f}"


def _beside(verdict: Judgement, view: View) -> str:
    if verdict.claim.statistic not in QUALITY:
        return ""
    return _ours(verdict.claim, verdict.readings[view], "!" if view in verdict.dissenting else "")


def _word(verdict: Judgement) -> str:
    return f"{verdict.word} (agrees)" if verdict.word == "no effect" and verdict.agrees else verdict.word


def _summary(verdicts: Sequence[Judgement]) -> str:
    words = Counter(_word(verdict) for verdict in verdicts).most_common()
    dissent = sum(bool(verdict.dissenting) for verdict in verdicts)
    text = f"{len(verdicts)} claims: {', '.join(f'{word} {count}' for word, count in words)}."
    return text + (f" Another metric than rank 0's points elsewhere in {dissent}." if dissent else "")


def _signed(value: float, digits: int | None = None) -> str:
    if not isfinite(value):
        return str(value)
    return f"{value:+.{(1 if abs(value) >= 10 else 2) if digits is None else digits}f}"


def _of(claim: Claim) -> Callable[[float], str]:
    """How a difference is written."""
    return partial(_signed, digits=3) if claim.statistic == "loss" else _signed
