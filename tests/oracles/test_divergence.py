"""How far replicas drift apart, through the real engine, against the closed forms of `paftbench.theory`.

With 5e4 parameters and 4 ranks D^2 carries a statistical error of sqrt(2 / 1.5e5) = 0.37 %.
"""

import numpy as np
import pytest
import torch
from quadratic_runs import LR, STD, course, quadratic, step, weights

from paftbench import specs, theory
from paftbench.faults.fault import Fault
from paftbench.faults.injector import Injector
from paftbench.mitigations.contract import Mitigation
from paftbench.step.metrics import spread

DIM, WORLD = 50_000, 4


def noise(std: float = STD) -> Fault:
    return specs.fault("gaussian_noise", degree=std, unit="std", site="result")


def paft(period: int, **fields: object) -> Mitigation:
    return specs.mitigation("paft_sync", period=period, **fields)


def growth(divergence: float, *, world_size: int = WORLD, dim: int = DIM) -> float:
    """D^2 from a divergence."""
    return divergence**2 / (dim * STD**2 * LR**2 * (world_size - 1) / world_size)


@pytest.mark.parametrize("curvature", [0.0, 1.0])
@pytest.mark.parametrize("world_size", [2, 4, 8])
def test_sgd_drifts_as_a_random_walk_whatever_the_loss(curvature: float, world_size: int) -> None:
    run = course(quadratic(dim=DIM, world_size=world_size, curvature=curvature, faults=[noise()]), 12)
    measured = [growth(d, world_size=world_size) for d in run.after]
    assert measured == pytest.approx([theory.sgd_growth(t) for t in range(1, 13)], rel=0.02)


@pytest.mark.parametrize("curvature", [0.0, 0.5])
def test_momentum_drifts_as_the_sum_of_squared_momentum_factors(curvature: float) -> None:
    run = course(quadratic(dim=DIM, momentum=0.9, curvature=curvature, faults=[noise()]), 30)
    expected = [theory.momentum_growth(t, 0.9) for t in range(1, 31)]
    assert [growth(d) for d in run.after] == pytest.approx(expected, rel=0.02)


def test_a_blocking_sync_makes_a_saw_tooth_from_zero_to_the_period() -> None:
    run = course(quadratic(dim=DIM, curvature=1.0, faults=[noise()], mitigations=[paft(5)]), 20)
    for index, (after, before) in enumerate(zip(run.after, run.before, strict=True)):
        since = (index + 1) % 5
        assert growth(after) == pytest.approx(since, rel=0.02)
        if since == 0:
            assert before is not None and after == 0.0 and growth(before) == pytest.approx(5, rel=0.02)
        else:
            assert before is None
    assert run.virtual.pipeline.syncs == 4 and run.virtual.pipeline.periods == [5] * 4


def test_an_overlapped_sync_runs_from_one_to_the_period() -> None:
    run = course(quadratic(dim=DIM, curvature=1.0, faults=[noise()], mitigations=[paft(5, overlap=True)]), 16)
    assert [growth(d) for d in run.after] == pytest.approx([1, 2, 3, 4, 5] * 3 + [1], rel=0.02)
    loads = [index for index, before in enumerate(run.before) if before is not None]
    assert loads == [5, 10, 15]
    assert [growth(run.before[index]) for index in loads] == pytest.approx([5, 5, 5], rel=0.02)


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("state", ["params", "all", "reset"])
def test_every_form_of_the_sync_follows_its_recursion(overlap: bool, state: str) -> None:
    rule = paft(4, overlap=overlap, state=state)
    run = course(quadratic(dim=DIM, momentum=0.9, curvature=0.3, faults=[noise()], mitigations=[rule]), 17)
    expected = theory.drift([1.0] * 17, momentum=0.9, period=4, overlap=overlap, state=state)  # type: ignore[arg-type]
    assert [growth(d) for d in run.after] == pytest.approx(expected.after.tolist(), rel=0.02, abs=1e-12)
    for before, peak in zip(run.before, expected.before, strict=True):
        assert before is None or growth(before) == pytest.approx(peak, rel=0.02)


@pytest.mark.parametrize(("period", "peak"), [(5, 40.55), (10, 202.1)])
def test_synchronised_momentum_peaks_where_the_design_says(period: int, peak: float) -> None:
    rule = paft(period, state="all")
    run = course(quadratic(dim=DIM, momentum=0.9, faults=[noise()], mitigations=[rule]), 2 * period)
    before = run.before[2 * period - 1]
    assert before is not None and growth(before) == pytest.approx(peak, rel=0.02)


@pytest.mark.parametrize(("period", "ratio"), [(2, 4.34), (5, 2.77), (10, 1.89), (50, 1.12)])
def test_unsynchronised_momentum_raises_the_peak_by_the_known_ratio(period: int, ratio: float) -> None:
    peaks = {}
    steps = -(-80 // period) * period
    for state in ("params", "all"):
        rule = paft(period, state=state)
        run = course(quadratic(dim=DIM, momentum=0.9, faults=[noise()], mitigations=[rule]), steps)
        last = run.before[-1]
        assert last is not None
        peaks[state] = growth(last)
    assert peaks["params"] / peaks["all"] == pytest.approx(ratio, rel=0.03)
    assert peaks["params"] == pytest.approx(theory.params_peak(period, 0.9), rel=0.02)


@pytest.mark.parametrize("optimizer", ["adam", "adamw"])
def test_adam_under_pure_noise_drifts_independently_of_the_noise(optimizer: str) -> None:
    expected = theory.adam_growth(100, ranks=WORLD)
    courses = []
    for std in (0.01, 10.0):
        run = course(quadratic(dim=20_000, optimizer=optimizer, lr=1e-3, faults=[noise(std)]), 100)
        courses.append(np.square(run.after) / (20_000 * 1e-3**2))
    for measured in courses:
        assert measured[[0, 9, 99]].tolist() == pytest.approx([0.75, 10.7, 83.0], rel=0.05)
        assert measured == pytest.approx(expected, rel=0.05)
    assert courses[0] == pytest.approx(courses[1], rel=1e-3)


@pytest.mark.parametrize("world_size", [2, 3, 4, 8])
@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_after_a_full_sync_ranks_are_equal_in_every_bit(world_size: int, exact: bool, optimizer: str) -> None:
    virtual = quadratic(
        dim=5_000, world_size=world_size, momentum=0.9, curvature=1.0, optimizer=optimizer, exact=exact,
        faults=[noise()], mitigations=[paft(3, state="all")],
    )  # fmt: skip
    for index in range(9):
        step(virtual)
        synced = index % 3 == 2
        assert (virtual.pipeline.measured.divergence == 0.0) == synced
        blocks = [*virtual.replicas.parameters, *virtual.replicas.moments]
        equal = all(torch.equal(block[0].view(torch.int32), row.view(torch.int32)) for block in blocks for row in block)
        assert equal == synced
    assert len(virtual.replicas.moments) == (1 if optimizer == "sgd" else 2)


def test_a_sync_of_equal_replicas_changes_no_bit() -> None:
    plain = quadratic(dim=5_000, world_size=8, momentum=0.9, curvature=1.0)
    synced = quadratic(dim=5_000, world_size=8, momentum=0.9, curvature=1.0, mitigations=[paft(1, state="all")])
    for _ in range(5):
        step(plain)
        step(synced)
    assert torch.equal(weights(plain), weights(synced))


def test_measuring_never_changes_the_trajectory() -> None:
    runs = []
    for measuring in (True, False):
        virtual = quadratic(
            dim=1_000, curvature=1.0, momentum=0.9, faults=[noise()], mitigations=[paft(3, overlap=True)]
        )
        virtual.pipeline.measuring = measuring
        for _ in range(8):
            step(virtual)
        runs.append(weights(virtual).clone())
    assert torch.equal(runs[0], runs[1])


def test_a_reset_leaves_no_momentum_and_a_sync_of_everything_leaves_adams_step_counter() -> None:
    virtual = quadratic(dim=100, momentum=0.9, curvature=1.0, faults=[noise()], mitigations=[paft(2, state="reset")])
    for index in range(4):
        step(virtual)
        assert all(bool((moment == 0).all()) for moment in virtual.replicas.moments) == (index % 2 == 1)
    adam = quadratic(dim=100, optimizer="adam", curvature=1.0, faults=[noise()], mitigations=[paft(2, state="all")])
    for _ in range(4):
        step(adam)
    (state,) = adam.optimizer.state.values()
    assert float(state["step"]) == 4.0


def test_inconsistency_and_nsr_are_those_of_the_noise() -> None:
    virtual = quadratic(dim=DIM, curvature=1.0, faults=[noise()])
    signal = float((weights(virtual)[0].double() - 1.0).norm())
    step(virtual)
    measured = virtual.pipeline.measured
    assert measured.grad_norm == pytest.approx(signal, rel=1e-6)
    assert measured.inconsistency == pytest.approx(STD * (DIM * 3 / 4) ** 0.5, rel=0.01)
    assert measured.nsr == pytest.approx(STD * DIM**0.5 / signal, rel=0.01)


def test_the_nsr_of_contributions_is_that_of_their_mean() -> None:
    virtual = quadratic(dim=DIM, curvature=1.0, faults=[specs.fault("gaussian_noise", degree=STD, site="contribution")])
    signal_N = weights(virtual)[0].double() - 1.0
    step(virtual)
    received_N = virtual.blocks[0].grad_Ln[0].double()
    expected = float((received_N - signal_N).norm() / signal_N.norm())
    assert virtual.pipeline.measured.nsr == pytest.approx(expected, rel=0.01)


def test_noise_on_contributions_moves_all_ranks_alike_and_no_sync_repairs_it() -> None:
    fault = specs.fault("gaussian_noise", degree=STD, site="contribution")
    runs = []
    for mitigations in ([], [paft(2)]):
        virtual = quadratic(dim=DIM, faults=[fault], mitigations=mitigations)
        start = weights(virtual)[0].clone()
        for _ in range(4):
            step(virtual)
            assert virtual.pipeline.measured.divergence == 0.0 == virtual.pipeline.measured.inconsistency
        runs.append(weights(virtual)[0] - start)
    assert torch.equal(runs[0], runs[1])
    assert float(runs[0].std()) == pytest.approx(LR * STD * (4 / WORLD) ** 0.5, rel=0.02)


def test_two_reductions_differ_under_a_transient_fault_and_agree_under_a_permanent_one() -> None:
    received: dict[str, list[torch.Tensor]] = {}
    for persistence in ("transient", "permanent"):
        fault = specs.fault(
            "bit_flip", degree=0.5, persistence=persistence, ranks={"random": 1},
            schedule={"kind": "probability", "p": 0.5},
        )  # fmt: skip
        layout = quadratic(dim=1_000).layout
        for seed in range(20):
            virtual = quadratic(dim=1_000)
            virtual.pipeline.injector = Injector([fault], layout, virtual.ranks, seed=seed)
            for attempt in (0, 1):
                virtual.pipeline.step = 0
                virtual.pipeline.attempt = attempt
                virtual.pipeline.begin()
                virtual.blocks[0].owner.grad = virtual.blocks[0].grad_Ln.fill_(1.0)
                virtual.pipeline.received()
                received.setdefault(persistence, []).append(virtual.blocks[0].grad_Ln.clone())
    pairs = {name: list(zip(grads[::2], grads[1::2], strict=True)) for name, grads in received.items()}
    clean = torch.ones((WORLD, 1_000))
    assert all(torch.equal(first, second) for first, second in pairs["permanent"])
    assert any(not torch.equal(first, clean) for first, _ in pairs["permanent"])
    struck = [(first, second) for first, second in pairs["transient"] if not torch.equal(first, clean)]
    assert struck and all(not torch.equal(first, second) for first, second in struck)
    assert any(torch.equal(second, clean) for _, second in struck)


def test_spread_is_the_root_mean_square_distance_to_the_mean() -> None:
    virtual = quadratic(dim=3, world_size=2)
    block = torch.tensor([[0.0, 0.0, 0.0], [3.0, 0.0, 4.0]])
    assert spread([block], virtual.ranks) == pytest.approx(2.5)
