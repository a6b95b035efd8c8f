"""One wrong number in a rank's memory, a weight or a moment: what becomes of it, exactly."""

from math import sqrt

import pytest
import torch
from nudge import DELTA, nudge
from quadratic_runs import LR, STD, quadratic, step, weights
from torch import Tensor

from paftbench import specs, theory
from paftbench.ranks.sites import Site

WORLD = 4
APART = DELTA * sqrt(WORLD - 1) / WORLD  # divergence of replicas of which one is DELTA away in one element


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("curvature", [0.0, 0.5])
def test_a_struck_weight_stays_wrong_by_what_struck_it(momentum: float, curvature: float) -> None:
    struck = nudge(site=Site.PARAMETER)
    virtual = quadratic(dim=50, dtype=torch.float64, momentum=momentum, curvature=curvature, faults=[struck])
    for index in range(30):
        step(virtual)
        gap_WN = weights(virtual) - weights(virtual)[0]
        if index < 2:
            assert not bool(gap_WN.any())
            continue
        ((rank, place),) = gap_WN.nonzero().tolist()
        assert rank == 1 and float(gap_WN[rank, place]) == pytest.approx(DELTA, rel=1e-12)
        assert virtual.pipeline.measured.divergence == pytest.approx(APART, rel=1e-12)
        assert virtual.pipeline.measured.nsr == 0.0
    (row,) = virtual.pipeline.injector.drain()
    assert (row["step"], row["rank"], row["site"], row["index"]) == (2, 1, "parameter", place)


def test_a_struck_weight_changes_no_other_number() -> None:
    runs = [quadratic(dim=50, momentum=0.9, faults=faults) for faults in ([nudge(site=Site.PARAMETER)], [])]
    for virtual in runs:
        for _ in range(6):
            step(virtual)
    differs_WN = weights(runs[0]) != weights(runs[1])
    assert int(differs_WN.sum()) == 1 and bool(differs_WN[1].any())


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_weight_decay_alone_shrinks_a_struck_weight(optimizer: str) -> None:
    struck = nudge(site=Site.PARAMETER, at=0)
    virtual = quadratic(
        dim=50, dtype=torch.float64, optimizer=optimizer, weight_decay=0.2, curvature=1.0, faults=[struck]
    )
    for index in range(20):
        step(virtual)
        gap_WN = weights(virtual) - weights(virtual)[0]
        assert float(gap_WN.sum()) == pytest.approx(DELTA * (1 - LR * 0.2) ** index, rel=1e-10)


def test_averaging_spreads_a_struck_weight_to_all_ranks_in_the_same_step() -> None:
    sync = specs.mitigation("paft_sync", period=3)
    runs = [
        quadratic(dim=50, dtype=torch.float64, faults=faults, mitigations=[sync])
        for faults in ([nudge(site=Site.PARAMETER)], [])
    ]
    for virtual in runs:
        for _ in range(3):
            step(virtual)
    gap_WN = weights(runs[0]) - weights(runs[1])
    assert gap_WN[gap_WN != 0].tolist() == pytest.approx([DELTA / WORLD] * WORLD, rel=1e-12)
    measured = runs[0].pipeline.measured
    assert measured.divergence_before == pytest.approx(APART, rel=1e-12) and measured.divergence == 0.0


@pytest.mark.parametrize("momentum", [0.5, 0.9])
@pytest.mark.parametrize("curvature", [0.0, 0.5])
def test_a_struck_momentum_moves_the_weight_by_what_is_left_of_it_at_each_update(
    momentum: float, curvature: float
) -> None:
    struck = nudge(site=Site.OPTIMIZER_STATE)
    virtual = quadratic(dim=50, dtype=torch.float64, momentum=momentum, curvature=curvature, faults=[struck])
    for index in range(30):
        step(virtual)
        gap_WN = weights(virtual) - weights(virtual)[0]
        if index < 3:  # the update of step 2 came before the strike
            assert not bool(gap_WN.any())
            continue
        ((rank, place),) = gap_WN.nonzero().tolist()
        expected = -LR * DELTA * momentum * theory.momentum_factor(index - 2, momentum)
        assert rank == 1 and float(gap_WN[rank, place]) == pytest.approx(expected, rel=1e-11)
    (row,) = virtual.pipeline.injector.drain()
    assert (row["step"], row["parameter"], row["index"]) == (2, "theta:momentum_buffer", place)
    assert row["value_after"] - row["value_before"] == pytest.approx(DELTA, rel=1e-12)


@pytest.mark.parametrize("optimizer", ["adam", "adamw"])
def test_a_struck_moment_of_adam_fades_at_the_rate_of_its_own_kind(optimizer: str) -> None:
    struck = nudge(site=Site.OPTIMIZER_STATE, at=1)
    virtual = quadratic(dim=50, dtype=torch.float64, optimizer=optimizer, curvature=1.0, faults=[struck])
    ((_, owner),) = virtual.replicas.owners
    expected_N = torch.zeros(50, dtype=torch.float64)
    off = {kind: torch.zeros(50, dtype=torch.float64) for kind in ("exp_avg", "exp_avg_sq")}
    for index in range(12):
        step(virtual)
        if index == 1:
            rows = virtual.pipeline.injector.drain()
            assert sorted(row["parameter"] for row in rows) == ["theta:exp_avg", "theta:exp_avg_sq"]
            for row in rows:
                off[row["parameter"].removeprefix("theta:")][row["index"]] = DELTA
        if index > 1:
            first_N, second_N = (virtual.optimizer.state[owner][kind][0] for kind in off)
            off["exp_avg"] *= 0.9
            off["exp_avg_sq"] *= 0.999
            wrong_N = _adam(first_N + off["exp_avg"], second_N + off["exp_avg_sq"], index + 1)
            expected_N -= wrong_N - _adam(first_N, second_N, index + 1)
        gap_WN = weights(virtual) - weights(virtual)[0]
        assert torch.allclose(gap_WN[1], expected_N, rtol=1e-9, atol=1e-15)
        assert not bool(gap_WN[[0, 2, 3]].any())
    assert int((expected_N.abs() > 1e-3).sum()) == 2


def _adam(first_N: Tensor, second_N: Tensor, updates: int) -> Tensor:
    """What Adam's update of that number takes from a weight, given its moments."""
    return LR * (first_N / (1 - 0.9**updates)) / ((second_N / (1 - 0.999**updates)).sqrt() + 1e-8)


@pytest.mark.parametrize(("state", "after"), [("params", LR * DELTA * 0.9), ("all", 0.0)])
def test_averaging_repairs_a_struck_momentum_only_where_it_averages_the_state_too(state: str, after: float) -> None:
    sync = specs.mitigation("paft_sync", period=3, state=state)
    virtual = quadratic(
        dim=50, dtype=torch.float64, momentum=0.9, faults=[nudge(site=Site.OPTIMIZER_STATE)], mitigations=[sync]
    )
    divergences = []
    for _ in range(4):
        step(virtual)
        divergences.append(virtual.pipeline.measured.divergence)
    assert divergences == pytest.approx([0.0, 0.0, 0.0, after * sqrt(WORLD - 1) / WORLD], rel=1e-12)


def test_kinds_of_state_are_struck_independently_of_each_other_and_of_the_parameters() -> None:
    noise = [specs.fault("gaussian_noise", name="noise", degree=STD, site="optimizer_state")]
    virtual = quadratic(dim=20_000, optimizer="adam", curvature=1.0, faults=noise)
    clean = quadratic(dim=20_000, optimizer="adam", curvature=1.0)
    for placement in (virtual, clean):
        step(placement)
    changes = [a - b for a, b in zip(virtual.replicas.moments, clean.replicas.moments, strict=True)]
    assert all(float(change_WN.std()) == pytest.approx(STD, rel=0.02) for change_WN in changes)
    rows = torch.cat([change_WN.double() for change_WN in changes])
    assert float((torch.corrcoef(rows) - torch.eye(2 * WORLD, dtype=torch.float64)).abs().max()) < 0.04
    counts = virtual.pipeline.injector.counts
    assert counts.drawn == counts.landed == 2 * WORLD * 20_000 == virtual.pipeline.injector.drawn_now
