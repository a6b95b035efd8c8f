"""The rank axis: sums in a stated order, and means that leave equal replicas as they are."""

import functools
from collections.abc import Sequence
from math import isnan

import pytest
import torch
import torch.distributed as dist
from support.processes import RankError, attempt, together
from torch import Tensor

from paftbench.ranks.axis import Ranks, default_segments, ring_sum
from paftbench.step.aggregation import segments_of
from paftbench.step.metrics import spread

WORLDS = (1, 2, 3, 4, 5, 8)
WIDE = (2, 3, 4, 7, 8, 64, 100)
DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)


def random_rows(world_size: int, size: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(world_size, size, generator=torch.Generator().manual_seed(world_size)).to(dtype)


def words(x: Tensor) -> Tensor:
    return x.contiguous().view(torch.uint8)


def assert_same_bits(ours: Tensor, theirs: Tensor) -> None:
    assert ours.shape == theirs.shape and torch.equal(words(ours), words(theirs))


@pytest.mark.parametrize("world_size", WIDE)
def test_ring_sums_start_each_chunk_at_its_own_rank(world_size: int) -> None:
    rows = random_rows(world_size, 501)
    ours = ring_sum(rows, default_segments(501, world_size))
    by_hand = torch.empty(501)
    for n in range(501):
        (c,) = (c for c in range(world_size) if c * 501 // world_size <= n < (c + 1) * 501 // world_size)
        by_hand[n] = functools.reduce(
            lambda a, b: a + b, [rows[(c + hop) % world_size, n] for hop in range(world_size)]
        )
    assert_same_bits(ours[0], by_hand)


def test_the_order_of_a_ring_sum_matters_from_three_ranks_on() -> None:
    rows = random_rows(3, 501)
    assert not torch.equal(ring_sum(rows, default_segments(501, 3)), ring_sum(rows, [(0, 501, 0)]))


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("world_size", [2, 3, 4])
def test_rows_are_scaled_by_the_float32_of_one_over_w_before_they_are_summed(world_size: int, exact: bool) -> None:
    rows = random_rows(world_size, 1000)
    scale = torch.tensor(1.0, dtype=torch.float64).div(world_size).float()
    mean = Ranks.virtual(world_size, exact=exact).mean(rows)
    scaled = rows * scale
    chunks = default_segments(1000, world_size) if exact else [(0, 1000, 0)]
    assert_same_bits(mean, ring_sum(scaled, chunks))


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("world_size", WORLDS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_consensus_leaves_equal_replicas_exactly_as_they_are(dtype: torch.dtype, world_size: int, exact: bool) -> None:
    value = torch.cat([random_rows(1, 997, dtype)[0], torch.tensor([0.0, -0.0, 1e-7, -1e-7], dtype=dtype)])
    rows = value.repeat(world_size, 1)
    (mean,) = Ranks.virtual(world_size, exact=exact).consensus([rows])
    assert_same_bits(mean[0], value)


def test_the_plain_mean_of_equal_rows_is_not_always_the_value() -> None:
    rows = random_rows(1, 1000).repeat(3, 1)
    assert not torch.equal(Ranks.virtual(3).mean(rows)[0], rows[0])


@pytest.mark.parametrize("world_size", [3, 8])
def test_divergence_after_a_consensus_is_exactly_zero(world_size: int) -> None:
    ranks, rows = Ranks.virtual(world_size), random_rows(world_size, 1000)
    assert spread([rows], ranks) > 1
    rows.copy_(ranks.consensus([rows])[0])
    assert spread([rows], ranks) == 0.0


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("world_size", [2, 3, 4, 8])
def test_means_keep_the_sign_of_zero(world_size: int, exact: bool) -> None:
    rows = torch.full((world_size, 50), -0.0)
    assert torch.signbit(Ranks.virtual(world_size, exact=exact).mean(rows)).all()


@pytest.mark.parametrize("exact", [False, True])
def test_a_consensus_of_infinities_is_their_plain_mean(exact: bool) -> None:
    ranks, inf, nan = Ranks.virtual(3, exact=exact), float("inf"), float("nan")
    columns = [[inf, 1.0, 2.0], [1.0, inf, 2.0], [-inf, -inf, -inf], [inf, -inf, 1.0], [nan, 1.0, 2.0], [1.0, nan, 2.0]]
    rows = torch.tensor(columns).T.contiguous()
    expected = torch.tensor([[inf, inf, -inf, nan, nan, nan]])
    for mean in (ranks.mean(rows), *ranks.consensus([rows])):
        torch.testing.assert_close(mean, expected, rtol=0, atol=0, equal_nan=True)


def infinite_spread() -> float:
    group = dist.group.WORLD
    assert group is not None
    return spread([torch.full((1, 3), float("inf"))], Ranks.of_group(2, group))


def test_the_divergence_of_replicas_that_share_an_infinity_is_nan_in_any_placement() -> None:
    found = [*together(infinite_spread, 2), spread([torch.full((2, 3), float("inf"))], Ranks.virtual(2))]
    assert all(isnan(value) for value in found)


@pytest.mark.parametrize("exact", [False, True])
def test_an_asynchronous_consensus_is_that_of_the_moment_it_was_started(exact: bool) -> None:
    ranks = Ranks.virtual(3, exact=exact)
    blocks = [random_rows(3, 100), random_rows(3, 7).double(), random_rows(3, 33)]
    now = [mean.clone() for mean in ranks.consensus(blocks)]
    pending = ranks.start_consensus(blocks)
    for block in blocks:
        block.zero_()
    for ours, theirs in zip(pending.wait(), now, strict=True):
        assert_same_bits(ours, theirs)
    assert pending.wait() is pending.wait()


@pytest.mark.parametrize("world_size", [2, 3, 4, 8])
@pytest.mark.parametrize("sizes", [[1000], [3, 997], [500, 1, 1, 498], [100] * 10, [1] * 1000])
def test_buckets_of_any_cut_and_order_sum_as_the_whole_does(world_size: int, sizes: list[int]) -> None:
    rows = random_rows(world_size, 1000)
    ranks = Ranks.virtual(world_size, exact=True)
    whole = ranks.mean(rows)
    starts = [sum(sizes[:i]) for i in range(len(sizes))]
    parts = list(zip(starts, sizes, strict=True))
    for order in (parts, parts[::-1]):
        for bucket in (order[: len(order) // 2], order[len(order) // 2 :]):
            if not bucket:
                continue
            pieces = torch.cat([rows[:, start : start + size] for start, size in bucket], dim=1)
            mean = ranks.mean(pieces, segments_of(bucket, 1000, world_size))
            expected = torch.cat([whole[:, start : start + size] for start, size in bucket], dim=1)
            assert_same_bits(mean, expected)


def test_segments_cover_each_element_once_also_where_ranks_outnumber_elements() -> None:
    for size, world_size in ((5, 8), (1, 3), (1000, 256)):
        segments = segments_of([(0, size)], size, world_size)
        covered = [n for start, stop, _ in segments for n in range(start, stop)]
        assert sorted(covered) == list(range(size))
        assert [s for s in default_segments(size, world_size) if s[0] < s[1]] == segments


def test_a_group_of_one_process_cannot_host_a_part_of_the_ranks() -> None:
    with pytest.raises(ValueError, match=r"local \(ranks hosted here\): without a group all 4 must be, got \[0, 1\]"):
        Ranks(4, [0, 1])


def everything_that_crosses(world_size: int, exact: bool) -> dict[str, list[Tensor]]:
    """What every operation of `Ranks` gives on this process, [.] or [L, .] tensors."""
    group = dist.group.WORLD
    assert group is not None
    ranks = Ranks.of_group(world_size, group, exact=exact)
    return crossing(ranks)


def crossing(ranks: Ranks) -> dict[str, list[Tensor]]:
    local = list(ranks.local)
    first, second = random_rows(ranks.world_size, 301)[local], random_rows(ranks.world_size, 5).double()[local]
    pending = ranks.start_consensus([first, second])
    mean = ranks.mean(first)
    return {
        "mean": [mean],
        "gather": [ranks.gather(second)],
        "consensus": ranks.consensus([first, second]),
        "pending": pending.wait(),
        "any": [torch.tensor([ranks.any([rank == 1 for rank in local]), ranks.any([False] * len(local))])],
        "objects": [torch.tensor([rank for part in ranks.gather_objects(local) for rank in part])],
        "total": [ranks.total(first.double().sum(0))],
        "spread": [torch.tensor(spread([first, second], ranks))],
        "traffic": [torch.tensor([ranks.traffic.bytes, ranks.traffic.collectives])],
    }


@pytest.mark.parametrize(("processes", "world_size"), [(2, 2), (3, 3), (2, 4), (2, 6)])
def test_processes_of_one_or_more_ranks_give_what_one_process_gives(processes: int, world_size: int) -> None:
    alone = crossing(Ranks.virtual(world_size, exact=True))
    for part in together(everything_that_crosses, processes, world_size, True):
        for name, tensors in part.items():
            for ours, theirs in zip(tensors, alone[name], strict=True):
                if name in ("total", "spread"):
                    torch.testing.assert_close(ours, theirs, rtol=1e-13, atol=0)
                else:
                    assert_same_bits(ours, theirs)


def test_without_exact_processes_agree_with_one_process_within_rounding() -> None:
    alone = crossing(Ranks.virtual(4))
    parts = together(everything_that_crosses, 2, 4, False)
    for name in ("mean", "consensus"):
        for part in parts:
            torch.testing.assert_close(part[name], alone[name], rtol=1e-5, atol=1e-7)
        assert all(torch.equal(a, b) for a, b in zip(parts[0][name], parts[1][name], strict=True))


def on_a_part_of_the_world(members: Sequence[int]) -> list[Tensor]:
    group = dist.new_group(list(members))
    if dist.get_rank() not in members:
        return []
    assert isinstance(group, dist.ProcessGroup)
    ranks = Ranks.of_group(len(members), group)
    return ranks.start_consensus([torch.full((1, 3), float(dist.get_rank()))]).wait()


def test_an_asynchronous_consensus_needs_the_group_only_not_the_world() -> None:
    idle, first, second = together(on_a_part_of_the_world, 3, [1, 2])
    assert idle == [] and [part[0].tolist() for part in (first, second)] == [[[1.5] * 3]] * 2


def uneven() -> None:
    group = dist.group.WORLD
    assert group is not None
    Ranks.of_group(3, group)


def test_a_world_size_that_the_processes_do_not_divide_is_refused() -> None:
    with pytest.raises(RankError, match="world_size 3 is not a multiple of the 2 processes"):
        together(uneven, 2)


def one_breaks_off() -> None:
    group = dist.group.WORLD
    assert group is not None
    ranks = Ranks.of_group(2, group)
    pending = ranks.start_consensus([torch.ones(1, 3)])
    pending.wait()
    if dist.get_rank() == 1:
        raise KeyError("mine")
    ranks.start_consensus([torch.ones(1, 3)]).wait()


def test_a_lost_peer_ends_an_asynchronous_consensus_with_a_reason() -> None:
    left, lost = attempt(one_breaks_off, 2, limit_s=20)
    assert lost[0] == "raised" and "KeyError: 'mine'" in lost[1]
    assert left[0] == "raised" and "the overlapped mean failed" in left[1]
