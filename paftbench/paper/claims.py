"""The paper's claims by item, as data: those of quality here, of cost and of drift in files of their own."""

from collections.abc import Iterator
from dataclasses import replace
from functools import cache

from paftbench.paper.claim import DEGREE, Claim, Expect, Statistic, Where, at_text, key
from paftbench.paper.drift_claims import drift_claims
from paftbench.paper.items import STATE_PARTS, Item, item_of
from paftbench.paper.overhead_claims import overhead_claims
from paftbench.paper.published import entries, final, printed

Says = dict[Expect, str]

PERIODS = (2.0, 10.0)  # the bounds between which the paper's research code chooses
MARGINS = {
    "accuracy": 1.5,  # points: its plot and its table of one run differ by as much as 1.4
    "loss": 0.05,
}


def claims_of(name: str, scale: str = "small") -> tuple[Claim, ...]:
    """The claims of an item of the paper; at the small scale also those at degrees that stand for one of the paper's.

    `ValueError` for an unknown item.
    """
    item = item_of(name)
    # At the paper's scale its own degrees hurt, so nothing stands in for them.
    item = item if scale == "small" else replace(item, stand_ins=())
    if item.kind == "overhead":
        return tuple(overhead_claims(item))
    if item.kind == "divergence":
        return tuple(drift_claims(item))
    if item.name == "optimizer_state":
        return tuple(_states(item, scale))
    return tuple(_qualities(item))


def _says(none: str, more: str, less: str) -> Says:
    return {"none": none, "more": more, "less": less}


def _averaged(period: int) -> Says:
    how = f"averaging every {period} steps"
    return _says(f"{how} changes nothing", f"{how} beats plain DDP", f"{how} is worse than plain DDP")


_COST = _says("plain DDP trains as without faults", "noise costs plain DDP quality", "noise helps plain DDP")
_PAIRS = (
    ("golden", "ddp", _COST),
    ("paft_sync_H5", "ddp", _averaged(5)),
    ("paft_sync_H10", "ddp", _averaged(10)),
    ("paft_sync_H50", "ddp", _averaged(50)),
    ("paft", "ddp", _says("PAFT changes nothing", "PAFT beats plain DDP", "PAFT is worse than plain DDP")),
    (
        "golden", "paft",
        _says("PAFT trains as without faults", "PAFT stays below training without faults", "PAFT beats golden"),
    ),
    (
        "paft_sync_H5", "paft_sync_H50",
        _says("H = 5 and H = 50 are alike", "H = 5 beats H = 50", "H = 50 beats H = 5"),
    ),
    (
        "paft", "paft_sync_H10",
        _says("PAFT is as good as a fixed H = 10", "PAFT beats a fixed H = 10", "a fixed H = 10 beats PAFT"),
    ),
)  # fmt: skip
_STATES = (
    ("golden", "ddp", _COST),
    ("paft", "ddp", _says("", "averaging the parameters alone beats plain DDP", "")),
    ("paft_all", "ddp", _says("", "averaging the optimizer's state too beats plain DDP", "")),
    ("paft_all", "paft", _says("averaging the optimizer's state too changes nothing", "", "")),
)


def _qualities(item: Item) -> Iterator[Claim]:
    statistic: Statistic = "loss" if item.name.startswith("fig7") else "accuracy"
    for world_size in item.world_sizes:
        margin = _margin(item, world_size, statistic)
        for noise, theirs in [*((noise, noise) for noise in item.noise), *item.stand_ins]:
            size: Where = (("world_size", world_size),) if len(item.world_sizes) > 1 else ()
            where: Where = size if item.burst else (*size, (DEGREE, noise))
            at = ("bursts of " if item.burst else "") + f"std {at_text(noise, theirs)}"
            at = f"{world_size} workers, {at}" if size else at
            for left, right, says in _PAIRS:
                if {left, right} <= set(item.methods):
                    numbers = _number(item, left, world_size, theirs), _number(item, right, world_size, theirs)
                    yield _quality(item, statistic, at, (left, right), says, numbers, margin, where)
            if item.table is not None:
                yield _period(item, at, where, noise)


def _states(item: Item, scale: str) -> Iterator[Claim]:
    for part in STATE_PARTS:
        statistic: Statistic = "loss" if part.workload == "gpt2" else "accuracy"
        for noise in (part.noise, part.stand_in) if scale == "small" else (part.noise,):
            where = (("workload.name", part.workload), (DEGREE, noise))
            at = f"{part.model}, std {at_text(noise, part.noise)}"
            for left, right, says in _STATES:
                golden = None if left == "golden" else part.noise
                numbers = final(part.figure, left, golden), final(part.figure, right, part.noise)
                yield _quality(item, statistic, at, (left, right), says, numbers, MARGINS[statistic], where)


def _quality(
    item: Item, statistic: Statistic, at: str, sides: tuple[str, str], says: Says, numbers: tuple[float, float],
    margin: float, where: Where,
) -> Claim:  # fmt: skip
    left, right = sides
    gain = numbers[1] - numbers[0] if statistic == "loss" else numbers[0] - numbers[1]
    expect: Expect = "none" if abs(gain) <= margin else "more" if gain > 0 else "less"
    return Claim(
        id=key(item.name, at, f"{left}-{right}"), item=item.name, text=f"{at}: {says[expect]}", statistic=statistic,
        left=left, right=right, where=where, paper=numbers, expect=expect, margin=margin,
        note="Loss: theirs of training, ours of held-out text." if statistic == "loss" else "",
    )  # fmt: skip


def _period(item: Item, at: str, where: Where, noise: float) -> Claim:
    middle = sum(PERIODS) / 2
    long = noise <= 1e-3  # so weak that replicas hardly part, and it can wait as long as it may
    period = PERIODS[1] if long else PERIODS[0]
    return Claim(
        id=key(item.name, at, "period"), item=item.name, text=f"{at}: PAFT chooses a period near {period:g}",
        statistic="period", left="paft", where=where, paper=(period, middle), expect="more" if long else "less",
        note="Periods: implied by the tables, not printed. Ours is the median of a run's choices;"
        f" {middle:g} lies half-way.",
    )  # fmt: skip


def _number(item: Item, method: str, world_size: int, noise: float) -> float:
    """The paper's: from the printed table, else where the digitised curve ends."""
    if item.table is not None:
        return printed(item.table, method, world_size, noise)
    # A curve that one plot leaves out another may show; the last one's error names what is missing.
    for figure in item.figures[:-1]:
        try:
            return final(figure, method, None if method == "golden" else noise)
        except LookupError:
            continue
    return final(item.figures[-1], method, None if method == "golden" else noise)


@cache
def _margin(item: Item, world_size: int, statistic: Statistic) -> float:
    """How far the paper's single runs differ where nothing is claimed to: at noise 1e-4, from its fault-free run."""
    own = MARGINS[statistic]
    if item.setting.startswith("ResNet-50"):
        quiet = [row.value for row in entries(2) if row.world_size == world_size and row.noise_std == 1e-4]
        golden = printed(2, "golden", world_size, 1e-4)
        own = max(own, *(abs(value - golden) for value in quiet))
    return round(own, 6)
