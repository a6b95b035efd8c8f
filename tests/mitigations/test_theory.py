"""Closed forms against small simulations that share no code with them, and against the table they are quoted in."""

import numpy as np
import pytest

from paftbench import theory

ETA, STD = 0.05, 0.3


def simulate(
    steps: int,
    *,
    ranks: int,
    parameters: int = 60_000,
    momentum: float = 0.0,
    weight_decay: float = 0.0,
    period: int | None = None,
    state: str = "params",
    overlap: bool = False,
    rates: np.ndarray | None = None,
) -> tuple[list[float], list[float]]:
    """Divergence before and after each step's synchronisation, from weights that really move."""
    generator = np.random.default_rng(7)
    weights = np.ones((ranks, parameters))
    buffers = np.zeros_like(weights)
    pending: tuple[np.ndarray, np.ndarray] | None = None
    before, after = [], []
    for step in range(steps):
        shared = generator.standard_normal(parameters)
        gradient = shared + STD * generator.standard_normal(weights.shape)
        measured = None
        if pending is not None:
            measured = spread(weights)
            weights, buffers = pending[0].copy(), (buffers if state == "params" else pending[1].copy())
            pending = None
        buffers = momentum * buffers + gradient + weight_decay * weights
        weights = weights - (ETA if rates is None else rates[step]) * buffers
        before.append(spread(weights) if measured is None else measured)
        if period is not None and (step + 1) % period == 0:
            mean = np.broadcast_to(weights.mean(0), weights.shape)
            moment = np.broadcast_to(buffers.mean(0) if state == "all" else 0.0, weights.shape)
            if overlap:
                pending = (mean, moment)
            else:
                weights, buffers = mean.copy(), (buffers if state == "params" else moment.copy())
        after.append(spread(weights))
    return before, after


def spread(weights: np.ndarray) -> float:
    return float(np.sqrt(np.mean(np.sum((weights - weights.mean(0)) ** 2, axis=1))))


def units(divergence: float, ranks: int, parameters: int = 60_000) -> float:
    """D^2 as the table defines it."""
    return divergence**2 / (parameters * STD**2 * ETA**2 * (ranks - 1) / ranks)


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_plain_sgd_is_a_random_walk(ranks: int) -> None:
    _, after = simulate(30, ranks=ranks)
    assert units(after[-1], ranks) == pytest.approx(theory.sgd_growth(30), rel=0.02)


def test_the_lemma_is_corrected_in_its_constant_and_in_d() -> None:
    rates = np.linspace(0.1, 0.01, 25)
    _, after = simulate(25, ranks=2, rates=rates)
    corrected = theory.lemma_3_1(rates, std=STD, ranks=2, parameters=60_000)
    assert after[-1] ** 2 == pytest.approx(corrected, rel=0.02)
    assert corrected * 3 == pytest.approx(60_000 * 1.5 * STD**2 * np.sum(rates**2))


@pytest.mark.parametrize(("ranks", "factor"), [(1, 0.0), (2, 0.5), (4, 0.75), (32, 0.96875)])
def test_the_mean_contains_a_replicas_own_noise(ranks: int, factor: float) -> None:
    assert theory.consensus_factor(ranks) == factor


def test_momentum_multiplies_the_growth() -> None:
    _, after = simulate(40, ranks=4, momentum=0.9)
    assert units(after[-1], 4) == pytest.approx(theory.momentum_growth(40, 0.9), rel=0.02)
    assert theory.momentum_growth(400, 0.9) / 400 == pytest.approx(96, rel=0.01)


def test_momentum_growth_without_momentum_is_sgd() -> None:
    assert theory.momentum_growth(17, 0.0) == theory.sgd_growth(17)


def test_blocking_saw_tooth_counts_the_steps_since_the_last_synchronisation() -> None:
    tooth = theory.drift(np.ones(12), period=5)
    assert tooth.before.tolist() == [1, 2, 3, 4, 5, 1, 2, 3, 4, 5, 1, 2]
    assert tooth.after.tolist() == [1, 2, 3, 4, 0, 1, 2, 3, 4, 0, 1, 2]


def test_overlapped_saw_tooth_never_reaches_zero() -> None:
    tooth = theory.drift(np.ones(12), period=5, overlap=True)
    assert tooth.after.tolist() == [1, 2, 3, 4, 5, 1, 2, 3, 4, 5, 1, 2]
    assert tooth.before[5] == 5 and tooth.before[10] == 5


@pytest.mark.parametrize(("period", "expected"), [(5, 40.55), (10, 202.1)])
def test_peak_with_synchronised_momentum(period: int, expected: float) -> None:
    assert theory.momentum_growth(period, 0.9) == pytest.approx(expected, rel=1e-3)
    assert theory.drift(np.ones(4 * period), momentum=0.9, period=period, state="all").before[-1] == pytest.approx(
        theory.momentum_growth(period, 0.9)
    )


@pytest.mark.parametrize(("period", "ratio"), [(2, 4.34), (5, 2.77), (10, 1.89), (50, 1.12)])
def test_peak_ratio_tells_params_from_all(period: int, ratio: float) -> None:
    stationary = theory.params_peak(period, 0.9)
    assert stationary / theory.momentum_growth(period, 0.9) == pytest.approx(ratio, rel=0.01)
    assert theory.drift(np.ones(100 * period), momentum=0.9, period=period).before[-1] == pytest.approx(stationary)


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("state", ["params", "all", "reset"])
def test_drift_is_what_moving_weights_do(state: str, overlap: bool) -> None:
    rates = np.linspace(0.08, 0.02, 23)
    setting = {"momentum": 0.8, "weight_decay": 0.5, "period": 5, "state": state, "overlap": overlap}
    before, after = simulate(23, ranks=3, rates=rates, **setting)
    tooth = theory.drift(rates, **setting)
    scale = {"std": STD, "ranks": 3, "parameters": 60_000}
    assert np.allclose(before, theory.divergence(tooth.before, **scale), rtol=0.02)
    assert np.allclose(after, theory.divergence(tooth.after, **scale), rtol=0.02, atol=1e-9)


def test_divergence_scales_with_std_rate_and_size() -> None:
    one = theory.divergence(9.0, std=0.1, ranks=4, parameters=100, lr=0.2)
    assert one == pytest.approx(np.sqrt(9 * 100 * 0.75) * 0.1 * 0.2)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_one_strike_is_never_healed(momentum: float) -> None:
    weights, buffers = np.zeros(2), np.zeros(2)
    for step in range(12):
        buffers = momentum * buffers + 0.7 + np.array([0.0, 5.0 if step == 3 else 0.0])
        weights = weights - 0.1 * buffers
    struck = theory.strike_offset(5.0, lr=0.1, momentum=momentum, steps=9)
    assert abs(weights[1] - weights[0]) == pytest.approx(struck)


def test_adam_under_pure_noise_matches_the_table() -> None:
    growth = theory.adam_growth(100)
    assert growth[0] == pytest.approx(0.75, rel=0.02)
    assert growth[9] == pytest.approx(10.7, rel=0.02)
    assert growth[99] == pytest.approx(83, rel=0.02)


def test_adam_under_pure_noise_matches_a_plain_loop() -> None:
    generator = np.random.default_rng(3)
    total = 0.0
    for _ in range(400):
        noise = 1e3 * generator.standard_normal((10, 4))
        offset = np.zeros(4)
        for t in range(1, 11):
            m = sum(0.1 * 0.9 ** (t - s) * noise[s - 1] for s in range(1, t + 1)) / (1 - 0.9**t)
            v = sum(0.001 * 0.999 ** (t - s) * noise[s - 1] ** 2 for s in range(1, t + 1)) / (1 - 0.999**t)
            offset = offset - m / (np.sqrt(v) + 1e-8)
        total += float(np.var(offset)) / 400
    assert total == pytest.approx(theory.adam_growth(10)[9], rel=0.12)


def test_momentum_of_one_is_refused() -> None:
    with pytest.raises(ValueError, match="momentum"):
        theory.momentum_factor(3, 1.0)
