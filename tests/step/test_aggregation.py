"""W gradients to one: the mean, or a mitigation's own rule."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import pytest
import torch
from torch import Tensor, nn

from paftbench.mitigations import Mitigation
from paftbench.ranks.axis import Ranks
from paftbench.ranks.layout import Layout
from paftbench.step.aggregation import aggregate, aggregator, segments_of


@dataclass(frozen=True, kw_only=True)
class OwnMean(Mitigation):
    """A rule that asks for the mean."""

    name: ClassVar[str] = "own_mean"
    aggregates: ClassVar[bool] = True

    def aggregate(self, grad_Ln: Tensor, ranks: Ranks) -> Tensor:
        return ranks.mean(grad_Ln)


@dataclass(frozen=True, kw_only=True)
class Keep(Mitigation):
    """A rule that gives each rank its own gradient, in all of it at once."""

    name: ClassVar[str] = "keep"
    aggregates: ClassVar[bool] = True
    scope: ClassVar[Literal["element", "whole"]] = "whole"

    def aggregate(self, grad_Ln: Tensor, ranks: Ranks) -> Tensor:
        return grad_Ln


def rows(world_size: int = 3, size: int = 100) -> Tensor:
    return torch.randn(world_size, size, generator=torch.Generator().manual_seed(1))


def layout_of(*dtypes: torch.dtype) -> Layout:
    return Layout.of(nn.ParameterList(nn.Parameter(torch.zeros(10, dtype=dtype)) for dtype in dtypes))


def test_without_a_rule_the_mean_is_taken_and_counted_once() -> None:
    ranks = Ranks.virtual(3)
    torch.testing.assert_close(aggregate(rows(), ranks, None), rows().mean(0, keepdim=True))
    assert (ranks.traffic.collectives, ranks.traffic.bytes) == (1, 400)


def test_the_mean_within_a_rule_is_summed_as_the_buckets_elements_lie_in_the_ring() -> None:
    ranks = Ranks.virtual(3, exact=True)
    whole = ranks.mean(rows())
    pieces = [(60, 40), (0, 20)]
    bucket = torch.cat([rows()[:, start : start + size] for start, size in pieces], dim=1)
    segments = segments_of(pieces, 100, 3)
    expected = torch.cat([whole[:, start : start + size] for start, size in pieces], dim=1)
    assert torch.equal(aggregate(bucket, ranks, OwnMean(), segments), expected)
    assert not torch.equal(ranks.mean(bucket), expected), "outside the rule the bucket is forgotten"


def test_a_rule_may_give_each_rank_its_own() -> None:
    assert torch.equal(aggregate(rows(), Ranks.virtual(3), Keep()), rows())


def test_only_one_mitigation_may_aggregate() -> None:
    assert aggregator([Mitigation()], layout_of(torch.float32)) is None
    assert aggregator([Mitigation(), Keep()], layout_of(torch.float32)) == Keep()
    with pytest.raises(ValueError, match="mitigations: at most one may aggregate, got keep, own_mean"):
        aggregator([Keep(), OwnMean()], layout_of(torch.float32))


def test_a_rule_over_the_whole_gradient_needs_it_in_one_type() -> None:
    mixed = layout_of(torch.float32, torch.bfloat16)
    assert aggregator([OwnMean()], mixed) == OwnMean()
    with pytest.raises(ValueError, match=r"keep needs the whole gradient in one type, the model has torch.bfloat16, t"):
        aggregator([Keep()], mixed)
