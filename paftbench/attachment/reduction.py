"""How a DDP model's buckets are aggregated: as DDP would, in ring order, or by a mitigation's rule.

Shapes: n = elements of a bucket, N = of the whole gradient.
"""

from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor, nn

from paftbench.attachment.relay import Bucket, done, start_mean
from paftbench.mitigations.contract import Mitigation
from paftbench.ranks.axis import Ranks
from paftbench.ranks.layout import Layout, Slot
from paftbench.step.aggregation import aggregate, aggregator, segments_of

Cut = list[tuple[Slot, int, int]]  # (slot, offset in the bucket, elements) of each parameter in a bucket


class Reduction:
    """Reduces buckets one by one, or holds them back until the last for a rule that needs the whole gradient."""

    def __init__(
        self, layout: Layout, parameters: Sequence[nn.Parameter], ranks: Ranks, mitigations: Sequence[Mitigation]
    ) -> None:
        self._layout = layout
        self._ranks = ranks
        self._rule = aggregator(mitigations, layout)
        self._slots: dict[Tensor, Slot] = dict(zip(parameters, layout.slots, strict=True))
        self._device = parameters[0].device
        self._held: list[tuple[Bucket, Cut, torch.futures.Future[Tensor]]] = []

    def cut(self, bucket: Bucket) -> Cut:
        """Where each parameter lies in a bucket."""
        return [(self._slots[parameter], offset, parameter.numel()) for parameter, offset in bucket.parameters]

    def reduce(self, bucket: Bucket, group: dist.ProcessGroup) -> torch.futures.Future[Tensor]:
        """A future of the bucket's aggregate [n]; called in bucket order on every rank."""
        rule, ranks, buffer_n = self._rule, self._ranks, bucket.buffer_n
        if rule is not None and rule.scope == "whole":
            return self._held_back(bucket, rule)
        if rule is None and not ranks.exact:
            ranks.count(buffer_n.view(1, -1))
            return start_mean(buffer_n, group)
        starts = [(slot.start, size) for slot, _, size in self.cut(bucket)]
        segments = segments_of(starts, self._layout.size, ranks.world_size)
        buffer_n.copy_(aggregate(buffer_n.view(1, -1), ranks, rule, segments)[0])
        return done(buffer_n)

    def _held_back(self, bucket: Bucket, rule: Mitigation) -> torch.futures.Future[Tensor]:
        """A future that resolves when the last bucket has come and the rule has spoken."""
        future: torch.futures.Future[Tensor] = torch.futures.Future()
        self._held.append((bucket, self.cut(bucket), future))
        if bucket.is_last:
            held, self._held = self._held, []
            grad_1N = torch.zeros((1, self._layout.size), dtype=bucket.buffer_n.dtype, device=self._device)
            for part, cut, _ in held:
                for slot, offset, size in cut:
                    grad_1N[0, slot.start : slot.stop] = part.buffer_n[offset : offset + size]
            result_1N = aggregate(grad_1N, self._ranks, rule)
            for part, cut, waiting in held:
                for slot, offset, size in cut:
                    part.buffer_n[offset : offset + size] = result_1N[0, slot.start : slot.stop]
                waiting.set_result(part.buffer_n)
        return future
