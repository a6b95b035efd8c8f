"""W gradients to one: the mean, in whatever pieces a placement has them, or a mitigation's own rule.

Shapes: L = ranks hosted here, n = elements of a piece, N = elements of the whole gradient.
"""

from collections.abc import Sequence

from torch import Tensor

from paftbench.errors import Refused
from paftbench.mitigations.contract import Mitigation
from paftbench.ranks.axis import Ranks, Segments, default_segments
from paftbench.ranks.layout import Layout


def segments_of(starts: Sequence[tuple[int, int]], size: int, world_size: int) -> Segments:
    """Where the ring's chunks lie in a piece made of parameters at (flat start, elements), one after another.

    Chunk c covers the flat indices floor(c*N/W) to floor((c+1)*N/W), whatever the bucket layout is.
    """
    chunks = default_segments(size, world_size)
    segments: Segments = []
    offset = 0
    for flat, elements in starts:
        # A bucket cuts parameters out of the flat space, in an order of its own: where a chunk meets a parameter is
        # found in the flat space, and said in the bucket's.
        for start, stop, c in chunks:
            low, high = max(flat, start), min(flat + elements, stop)
            if low < high:
                segments.append((offset + low - flat, offset + high - flat, c))
        offset += elements
    return segments


def aggregator(mitigations: Sequence[Mitigation], layout: Layout) -> Mitigation | None:
    """The mitigation that replaces the mean, if the trial has one; `ValueError` where it does not fit the model."""
    rules = [mitigation for mitigation in mitigations if mitigation.aggregates]
    if len(rules) > 1:
        raise Refused(f"mitigations: at most one may aggregate, got {', '.join(rule.name for rule in rules)}")
    if rules and rules[0].scope == "whole" and len(layout.dtypes) > 1:
        names = ", ".join(sorted(str(dtype) for dtype in layout.dtypes))
        raise Refused(f"mitigation {rules[0].name} needs the whole gradient in one type, the model has {names}")
    return rules[0] if rules else None


def aggregate(grad_Ln: Tensor, ranks: Ranks, rule: Mitigation | None, segments: Segments | None = None) -> Tensor:
    """[1, n], or [L, n] where the rule gives each rank its own; `ValueError` for a result of another shape or dtype."""
    if rule is None:
        return ranks.mean(grad_Ln, segments)
    with ranks.bucket(segments):
        result = rule.aggregate(grad_Ln, ranks)
    if result.dtype != grad_Ln.dtype or result.shape not in ((1, grad_Ln.shape[1]), tuple(grad_Ln.shape)):
        raise ValueError(
            f"mitigation {rule.name}: aggregate() must return {grad_Ln.dtype} of shape [1, {grad_Ln.shape[1]}] or "
            f"{list(grad_Ln.shape)}, got {result.dtype} of shape {list(result.shape)}"
        )
    return result
