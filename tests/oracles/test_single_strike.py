"""One wrong element on one rank: what becomes of it, exactly."""

import pytest
import torch
from nudge import DELTA, nudge
from quadratic_runs import LR, quadratic, step, weights

from paftbench import specs, theory
from paftbench.faults.injector import Row
from paftbench.ranks.sites import Site


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("curvature", [0.0, 0.5])
def test_one_strike_stays_on_its_rank_and_element_and_grows_with_momentum(momentum: float, curvature: float) -> None:
    virtual = quadratic(dim=50, dtype=torch.float64, momentum=momentum, curvature=curvature, faults=[nudge()])
    for index in range(30):
        step(virtual)
        gap_WN = weights(virtual) - weights(virtual)[0]
        if index < 2:
            assert not bool(gap_WN.any())
            continue
        ((rank, place),) = gap_WN.nonzero().tolist()
        assert rank == 1
        expected = -LR * DELTA * theory.momentum_factor(index - 1, momentum)
        assert float(gap_WN[rank, place]) == pytest.approx(expected, rel=1e-12)
    (row,) = virtual.pipeline.injector.drain()
    assert (row["step"], row["rank"], row["index"]) == (2, 1, place)
    assert row["value_after"] - row["value_before"] == pytest.approx(DELTA, rel=1e-14)


def test_a_flipped_bit_does_what_its_log_row_says() -> None:
    flip = specs.fault("bit_flip", degree=1e-4, bits=22, ranks=[3], schedule={"kind": "steps", "steps": [0]})
    virtual = quadratic(dim=20_000, curvature=1.0, momentum=0.9, faults=[flip])
    for _ in range(6):
        step(virtual)
    rows = virtual.pipeline.injector.drain()
    assert rows
    gap_WN = (weights(virtual) - weights(virtual)[0]).double()
    assert sorted(gap_WN.nonzero().tolist()) == sorted([3, row["index"]] for row in rows)
    for row in rows:
        expected = -LR * (row["value_after"] - row["value_before"]) * theory.momentum_factor(6, 0.9)
        assert float(gap_WN[3, row["index"]]) == pytest.approx(expected, rel=1e-5)


def test_a_strike_on_a_contribution_reaches_all_ranks_scaled_and_alike() -> None:
    struck = quadratic(dim=50, dtype=torch.float64, faults=[nudge(site=Site.CONTRIBUTION, at=0)])
    clean = quadratic(dim=50, dtype=torch.float64)
    step(struck)
    step(clean)
    gap_WN = weights(struck) - weights(clean)
    assert struck.pipeline.measured.divergence == 0.0
    assert [rank for rank, _ in gap_WN.nonzero().tolist()] == [0, 1, 2, 3]
    assert gap_WN[gap_WN != 0].tolist() == pytest.approx([-LR * DELTA / 4] * 4, rel=1e-12)


def test_averaging_spreads_a_strike_to_all_ranks() -> None:
    sync = specs.mitigation("paft_sync", period=3)
    struck = quadratic(dim=50, dtype=torch.float64, faults=[nudge(1e6)], mitigations=[sync])
    clean = quadratic(dim=50, dtype=torch.float64, mitigations=[sync])
    for _ in range(3):
        step(struck)
        step(clean)
    gap_WN = weights(struck) - weights(clean)
    assert struck.pipeline.measured.divergence == 0.0
    assert gap_WN[gap_WN != 0].tolist() == pytest.approx([-LR * 1e6 / 4] * 4, rel=1e-9)


@pytest.mark.parametrize(
    ("order", "expected"), [(["clip_value", "regather"], 0.1 / 4), (["regather", "clip_value"], 0.1)]
)
def test_mitigations_apply_in_the_order_of_their_list(order: list[str], expected: float) -> None:
    built = [specs.mitigation(name, **({"limit": 0.1} if name == "clip_value" else {})) for name in order]
    virtual = quadratic(dim=20, faults=[nudge(1e3, at=0)], mitigations=built)
    start_WN = weights(virtual).clone()
    step(virtual)
    moved_WN = start_WN - weights(virtual)
    assert moved_WN[moved_WN != 0].tolist() == pytest.approx([LR * expected] * 4, rel=1e-4)
    assert virtual.pipeline.measured.divergence == 0.0


def test_clipping_before_a_sync_bounds_what_the_sync_spreads() -> None:
    limits = [specs.mitigation("clip_value", limit=0.1), specs.mitigation("paft_sync", period=1)]
    virtual = quadratic(dim=20, faults=[nudge(1e30, at=0)], mitigations=limits)
    start_WN = weights(virtual).clone()
    step(virtual)
    assert float((start_WN - weights(virtual)).abs().max()) == pytest.approx(LR * 0.1 / 4, rel=1e-4)


def test_clip_value_turns_nan_to_zero_and_infinities_to_the_limit() -> None:
    clip = specs.mitigation("clip_value", limit=0.25)
    virtual = quadratic(dim=6, world_size=2, mitigations=[clip])
    virtual.pipeline.begin()
    block = virtual.blocks[0]
    block.grad_Ln.copy_(torch.tensor([float("nan"), float("inf"), float("-inf"), 0.2, -3.0, 1e38]))
    block.owner.grad = block.grad_Ln
    virtual.pipeline.received()
    virtual.pipeline.mitigate_gradients()
    expected = torch.tensor([0.0, 0.25, -0.25, 0.2, -0.25, 0.25])
    assert torch.equal(block.grad_Ln, expected.expand(2, 6))


def test_regather_reaches_the_averaging_limit() -> None:
    noise = specs.fault("gaussian_noise", degree=0.3, site="result")
    virtual = quadratic(dim=100_000, faults=[noise], mitigations=[specs.mitigation("regather")])
    start_N = weights(virtual)[0].clone()
    for _ in range(4):
        step(virtual)
        assert virtual.pipeline.measured.divergence == 0.0
    moved_N = weights(virtual)[0] - start_N
    assert float(moved_N.std()) == pytest.approx(LR * 0.3 * (4 / 4) ** 0.5, rel=0.02)


def test_syncing_everything_at_every_step_equals_regather_for_sgd() -> None:
    noise = specs.fault("gaussian_noise", degree=0.3, site="result")
    runs = []
    for rule in (specs.mitigation("regather"), specs.mitigation("paft_sync", period=1, state="all")):
        virtual = quadratic(
            dim=1_000, dtype=torch.float64, momentum=0.9, curvature=1.0, faults=[noise], mitigations=[rule]
        )
        for _ in range(10):
            step(virtual)
        runs.append(weights(virtual).clone())
    assert torch.allclose(runs[0], runs[1], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("site", ["contribution", "result", "parameter", "optimizer_state"])
@pytest.mark.parametrize("model", ["bit_flip", "gaussian_noise", "stale_shard"])
def test_degree_zero_trains_the_same_bits_as_no_fault(model: str, site: str, dtype: torch.dtype) -> None:
    fields = {"schedule": "every_step", "site": site, "degree": 0.0}
    runs = []
    for faults in ([], [specs.fault(model, **fields)]):
        virtual = quadratic(dim=300, dtype=dtype, momentum=0.9, curvature=1.0, faults=faults)
        for _ in range(6):
            step(virtual)
        runs.append(weights(virtual).clone())
    rows: list[Row] = virtual.pipeline.injector.drain()
    assert torch.equal(runs[0].view(torch.uint8), runs[1].view(torch.uint8)) and rows == []
