"""What the paper says of divergence: Figure 2b, which prints no numbers, and Lemma 3.1, whose constant is wrong."""

from collections.abc import Iterator

from paftbench.paper.claim import DEGREE, Claim, degree_text, key
from paftbench.paper.items import Item
from paftbench.theory import consensus_factor


def drift_claims(item: Item) -> Iterator[Claim]:
    """Growth over the run, growth with the noise, and the lemma's constant."""
    for noise in item.noise:
        std = f"std {degree_text(noise)}"
        yield Claim(
            id=key(item.name, std, "growth"), item=item.name, text=f"{std}: divergence grows to the end of training",
            statistic="growth", left="ddp", where=((DEGREE, noise),), expect="more",
            note="Growth: powers of ten from a quarter of the steps to the last.",
        )  # fmt: skip
    for low, high in zip(item.noise, item.noise[1:], strict=False):
        yield Claim(
            id=key(item.name, f"std {degree_text(high)}", degree_text(low)), item=item.name, statistic="degree",
            text=f"std {degree_text(high)} drives replicas further apart than {degree_text(low)}",
            left="ddp", right="ddp", where=((DEGREE, high),), versus=((DEGREE, low),), expect="more",
            note="Further apart: powers of ten between the last divergences; Lemma 3.1 says 1 for ten times the noise.",
        )  # fmt: skip
    (ranks,) = item.world_sizes
    printed = (ranks + 1) / ranks
    for noise in item.noise:
        std = f"std {degree_text(noise)}"
        yield Claim(
            id=key(item.name, std, "lemma"), item=item.name, statistic="constant", left="ddp",
            text=f"{std}: Lemma 3.1's constant is (M+1)/M = {printed:g}", where=((DEGREE, noise),),
            paper=(printed, 1.0), expect="more", wrong=True,
            note="Lemma 3.1: the mean contains each replica's own noise, so it is (M-1)/M = "
            f"{consensus_factor(ranks):g} at M = {ranks}. Ours is the measured constant; 1 lies half-way.",
        )  # fmt: skip
