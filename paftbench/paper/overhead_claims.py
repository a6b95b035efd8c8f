"""What the paper says of cost: Table 3, and two sentences of its text that do not follow from it."""

from collections.abc import Iterator

from paftbench.paper.claim import Claim, key
from paftbench.paper.items import Item
from paftbench.paper.published import printed


def overhead(method: str, world_size: int) -> float:
    """Table 3 as % of plain DDP's step; the paper's plain DDP does not overlap its all-reduces with the backward."""
    return 100 * (printed(3, method, world_size) / printed(3, "ddp", world_size) - 1)


def overhead_claims(item: Item) -> Iterator[Claim]:
    """Both methods against plain DDP and each other, per number of workers."""
    for world_size in item.world_sizes:
        for left, right, text in (
            ("paft_sync", "ddp", "PAFT-Sync takes longer than plain DDP"),
            ("paft", "ddp", "PAFT takes longer than plain DDP"),
            ("paft", "paft_sync", "PAFT, overlapped, costs less than PAFT-Sync"),
        ):
            yield Claim(
                id=key(item.name, f"{world_size} workers", f"{left}-{right}"), item=item.name, statistic="overhead",
                text=f"{world_size} workers: {text}", left=left, right=right, where=(("world_size", world_size),),
                paper=(overhead(left, world_size), overhead(right, world_size)),
                expect="less" if right == "paft_sync" else "more",
            )  # fmt: skip
    yield from _wrong(item)


def _wrong(item: Item) -> Iterator[Claim]:
    sync, plain = printed(3, "paft_sync", 32), printed(3, "ddp", 32)
    yield Claim(
        id=key(item.name, "text", "paft_sync"), item=item.name, statistic="arithmetic", left="paft_sync", right="ddp",
        text="The text: PAFT-Sync costs 18.9 % at 32 workers", paper=(18.9, overhead("paft_sync", 32)), expect="none",
        wrong=True, note=f"Table 3 has {sync:.3f} / {plain:.3f} - 1 = {sync / plain - 1:.1%} of plain DDP's step"
        f" ({1 - plain / sync:.1%} of PAFT-Sync's own).",
    )  # fmt: skip
    own = [overhead("paft", world_size) for world_size in item.world_sizes]
    listed = ", ".join(f"{value:.1f}" for value in own)
    yield Claim(
        id=key(item.name, "text", "paft"), item=item.name, statistic="arithmetic", left="paft", right="ddp",
        text="The text: PAFT costs up to 11.0 %", paper=(11.0, max(own)), expect="none", wrong=True,
        note=f"Table 3 has {listed} % at {', '.join(map(str, item.world_sizes))} workers: 11.0 % is the least.",
    )  # fmt: skip
