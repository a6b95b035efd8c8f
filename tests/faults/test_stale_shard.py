"""Stale shards: what is kept, from when, and through a resume."""

import pytest
import torch
from support.injecting import DTYPES, SITES, gradients, in_slots, layout_of, same_bits, strike

from paftbench import specs
from paftbench.faults.injector import InjectionError, Injector
from paftbench.ranks.axis import Ranks
from paftbench.ranks.sites import Site

every_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=str)
every_site = pytest.mark.parametrize("site", SITES)


@every_dtype
@every_site
@pytest.mark.parametrize("delay", [1, 3])
@pytest.mark.parametrize("fraction", [0.1, 1.0])
def test_a_stale_shard_keeps_the_value_of_some_steps_ago(
    dtype: torch.dtype, site: str, delay: int, fraction: float
) -> None:
    layout = layout_of(dtype)
    grads = gradients(layout, steps=8, world_size=2)
    base = strike([specs.fault("stale_shard", degree=fraction, delay=delay, site=site)], layout, grads)
    length = round(fraction * layout.size)
    for step in range(8):
        for rank in range(2):
            places = base.differs_TWN[step, rank].nonzero().flatten()
            if step < delay:
                assert len(places) == 0
                continue
            low, high = int(places[0]), int(places[-1]) + 1
            assert length - 4 <= high - low <= length
            assert same_bits(base.after_TWN[step, rank, low:high], grads[step - delay, rank, low:high])
    assert [row["step"] for row in base.rows] == [step for step in range(delay, 8) for _ in range(2)]
    assert base.injector.counts.drawn == base.injector.counts.changed == 2 * (8 - delay)


def test_a_stale_shard_that_strikes_one_random_rank_knows_the_past_of_all() -> None:
    layout = layout_of()
    grads = gradients(layout, steps=12, world_size=4)
    base = strike([specs.fault("stale_shard", degree=1.0, ranks={"random": 1})], layout, grads)
    struck_ranks = [row["rank"] for row in base.rows]
    assert len(struck_ranks) == 11 and len(set(struck_ranks)) > 1
    for row in base.rows:
        step, rank = row["step"], row["rank"]
        assert same_bits(base.after_TWN[step, rank], grads[step - 1, rank])
        others = [other for other in range(4) if other != rank]
        assert same_bits(base.after_TWN[step, others], grads[step, others])


@every_site
def test_a_stale_shard_goes_on_after_a_resume_as_if_never_interrupted(site: str) -> None:
    layout = layout_of()
    grads = gradients(layout, steps=9, world_size=2)
    one = specs.fault("stale_shard", degree=0.4, delay=3, site=site, schedule={"kind": "probability", "p": 0.7})
    through = strike([one], layout, grads)
    begun = strike([one], layout, grads[:5])
    resumed = Injector([one], layout, Ranks.virtual(2), seed=0)
    resumed.load_state_dict(begun.injector.state_dict())
    rest = strike([one], layout, grads[5:], first=5, injector=resumed)
    assert same_bits(through.after_TWN, torch.cat([begun.after_TWN, rest.after_TWN]))
    assert through.rows == begun.rows + rest.rows
    assert through.injector.counts == rest.injector.counts


def test_a_shard_stays_inside_the_selected_parameters() -> None:
    layout = layout_of()
    grads = gradients(layout, steps=2, world_size=1)
    base = strike([specs.fault("stale_shard", degree=1.0, parameters=["first.bias", "last.*"])], layout, grads)
    covered = [index for slot in layout.select(["first.bias", "last.*"]) for index in range(slot.start, slot.stop)]
    assert base.differs_TWN[1, 0].nonzero().flatten().tolist() == covered
    assert same_bits(base.after_TWN[1, 0, covered], grads[0, 0, covered])


def test_a_parameter_that_no_rank_used_has_a_past_of_zeros() -> None:
    layout = layout_of()
    bias = layout.by_name["first.bias"]
    here = slice(bias.start, bias.stop)
    one = specs.fault("stale_shard", degree=1.0)
    grads = gradients(layout, steps=4, world_size=1)
    injector = strike([one], layout, grads[:2]).injector
    strike([one], layout, grads[2:3], first=2, injector=injector, unused=[bias], cut=in_slots)
    last = strike([one], layout, grads[3:], first=3, injector=injector)
    assert bool((last.after_TWN[0, 0, here] == 0).all())
    assert same_bits(last.after_TWN[0, 0, : bias.start], grads[2, 0, : bias.start])


def test_a_shard_that_lies_wholly_on_unused_parameters_did_not_land() -> None:
    layout = layout_of()
    unused = [layout.by_name["first.weight"]]  # 1,000 of 1,119 elements: most shards of one element lie there
    grads = gradients(layout, steps=40, world_size=1)
    base = strike([specs.fault("stale_shard", degree=1 / layout.size)], layout, grads, unused=unused, cut=in_slots)
    counts, struck = base.injector.counts, base.differs_TWN.flatten(1).any(1)
    assert counts.drawn == 39 and 0 < counts.landed == int(struck.sum()) < 39
    assert [row["landed"] for row in base.rows] == struck.tolist()[1:]


def test_a_shard_in_a_piece_that_is_never_passed_is_an_error() -> None:
    layout = layout_of()
    grads = gradients(layout, steps=2, world_size=1)
    first = layout.slots[0]
    injector = strike([specs.fault("stale_shard", degree=1 / layout.size)], layout, grads[:1]).injector
    injector.begin(1)
    injector.strike(Site.RESULT, 0, [(first.stop, grads[1, 0, first.stop :])])
    with pytest.raises(InjectionError, match="drew 1 strikes at step 1 on rank 0, but 0 landed"):
        injector.end()


@pytest.mark.gpu
def test_a_shard_keeps_its_past_also_on_an_accelerator() -> None:
    layout = layout_of()
    grads = gradients(layout, steps=3, world_size=1)
    one = [specs.fault("stale_shard", degree=0.5)]
    assert same_bits(strike(one, layout, grads.cuda()).after_TWN.cpu(), strike(one, layout, grads).after_TWN)


def test_a_delay_below_one_step_is_refused() -> None:
    with pytest.raises(ValueError, match=r"delay \(how many steps old the shard is\) must be >= 1, got 0"):
        specs.fault("stale_shard", degree=0.1, delay=0)
