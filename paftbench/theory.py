"""Closed forms for how far replicas drift apart: what a simulation must reproduce, and what figures draw beside it.

Setting (Definition 2.1 of the PAFT paper, https://openreview.net/forum?id=cPZepCZlFW): M ranks share the mean gradient
and each adds its own noise N(0, sigma^2) per element and step at site `result`. The mean gradient is common, so the
difference between replicas obeys a linear recursion whatever the loss is: a real network drifts as a quadratic does.

Symbols: M ranks, d parameters, t steps, H period, mu momentum, eta learning rate. `drift` is D^2, the variance of one
coordinate's difference to the mean of infinitely many ranks, in units of sigma^2 (times eta^2 when eta is left at 1);
divergence^2 = d sigma^2 (M-1)/M drift, divergence being the RMS over ranks of ||theta_m - mean theta||.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
SyncedState = Literal["params", "all", "reset"]


@dataclass(frozen=True, kw_only=True)
class Drift:
    """D^2 per step: `before` the step's synchronisation and `after` it, [t] each; equal where the step has none."""

    before: Floats
    after: Floats


def consensus_factor(ranks: int) -> float:
    """(M-1)/M: the mean of the replicas contains each replica's own noise.

    Lemma 3.1 is printed with (M+1)/M; Monte Carlo gives 0.5, 0.75 and 0.969 at M = 2, 4 and 32.
    """
    if ranks < 1:
        raise ValueError(f"ranks (M) must be >= 1, got {ranks}")
    return (ranks - 1) / ranks


def momentum_factor(steps: int, momentum: float) -> float:
    """(1 - mu^k) / (1 - mu): how often k steps of SGD with momentum have applied one gradient, dampening 0."""
    if not 0.0 <= momentum < 1.0:
        raise ValueError(f"momentum must be within [0, 1), got {momentum!r}")
    return (1.0 - momentum**steps) / (1.0 - momentum)


def sgd_growth(steps: int) -> float:
    """D^2 of plain SGD without synchronisation, constant eta: a random walk, D^2 = t."""
    return float(steps)


def momentum_growth(steps: int, momentum: float) -> float:
    """D^2 of SGD with momentum without synchronisation: sum over k = 1..t of ((1 - mu^k) / (1 - mu))^2.

    Also the value just before each synchronisation of parameters and momentum (`state="all"`) with t = H:
    40.55 at mu = 0.9, H = 5 and 202.1 at H = 10.
    """
    return sum(momentum_factor(k, momentum) ** 2 for k in range(1, steps + 1))


def params_peak(period: int, momentum: float) -> float:
    """D^2 just before a synchronisation of the parameters alone, once the momentum disagreement is stationary.

    The momentum buffers keep their stationary variance 1/(1-mu^2) across a synchronisation, and carry it over with
    weight mu + mu^2 + ... + mu^H; H new noises come on top.
    """
    carried = momentum * momentum_factor(period, momentum)
    return momentum_growth(period, momentum) + carried**2 / (1.0 - momentum**2)


def drift(
    rates: Sequence[float] | Floats,
    *,
    momentum: float = 0.0,
    weight_decay: float = 0.0,
    period: int | None = None,
    state: SyncedState = "params",
    overlap: bool = False,
) -> Drift:
    """D^2 of SGD under PAFT-Sync, step by step, for learning rates `rates` [t]; `period=None` never synchronises.

    Second moments of (parameter, momentum) differences through b <- mu b + lambda x + eps, x <- x - eta b. Blocking
    synchronisation sets x to 0 after the update of every H-th step. With `overlap` the mean started after step t is
    loaded in step t+1 before its update (Algorithm 2), so nothing is 0 and D^2 runs 1, 2, ..., H, 1 for plain SGD;
    `before` is then the value just before loading. `state` all and reset remove the momentum difference too.
    """
    # Noise has mean 0, so means stay 0 and the second moments say all: E[x x], E[x b], E[b b]. They obey a recursion
    # of their own, exact for any number of steps, where a simulation would need thousands of runs.
    moments = np.zeros((2, 2))
    before, after = np.zeros(len(rates)), np.zeros(len(rates))
    for step, rate in enumerate(rates):
        due = period is not None and (step % period == 0 and step > 0 if overlap else (step + 1) % period == 0)
        # What was started after the step before is loaded ahead of this update, which then drifts on from it.
        loaded = float(moments[0, 0])
        if due and overlap:
            moments = synchronised(moments, state)
        moments = updated(moments, float(rate), momentum=momentum, weight_decay=weight_decay)
        before[step] = loaded if due and overlap else moments[0, 0]
        if due and not overlap:
            moments = synchronised(moments, state)
        after[step] = moments[0, 0]
    return Drift(before=before, after=after)


def updated(
    moments: Floats, rate: float, *, momentum: float = 0.0, weight_decay: float = 0.0, gain: float = 1.0
) -> Floats:
    """Second moments [2, 2] of a (parameter, momentum) difference after one more update with fresh noise of variance 1.

    `gain` is what the momentum takes of a gradient: 1 for SGD, 1 - beta1 for Adam.
    """
    # z = (x, b) becomes A z + eps n with fresh eps, so E[z z'] becomes A E[z z'] A' + n n'. Row one of A is row two
    # applied: x moves by -rate times the new b.
    transition = np.array([[1.0 - rate * gain * weight_decay, -rate * momentum], [gain * weight_decay, momentum]])
    noise = gain * np.array([-rate, 1.0])
    return transition @ moments @ transition.T + np.outer(noise, noise)


def synchronised(moments: Floats, state: SyncedState) -> Floats:
    """The same after the parameters, and unless `state` is params the momentum too, have become equal."""
    # x is 0 on all ranks now, so all that holds x is too; only the momentum's own variance may be left.
    kept = np.zeros((2, 2))
    if state == "params":
        kept[1, 1] = moments[1, 1]
    return kept


def noise_std(spread: float, drift: float, *, ranks: int) -> float:
    """The std of the noise that each rank adds per step, from the RMS over ranks and elements of what replicas drifted.

    sigma = D_rms sqrt(M/(M-1)) / sqrt(drift), the drift in units of sigma^2 with the learning rates in it.
    """
    return spread / float(np.sqrt(drift * consensus_factor(ranks)))


def divergence(drift: float | Floats, *, std: float, ranks: int, parameters: int, lr: float = 1.0) -> Floats:
    """What is measured, from D^2: sqrt(d (M-1)/M) sigma eta D. Leave `lr` at 1 where `drift` was given the rates."""
    return np.sqrt(np.asarray(drift, dtype=np.float64) * (parameters * consensus_factor(ranks))) * (std * lr)


def lemma_3_1(rates: Sequence[float] | Floats, *, std: float, ranks: int, parameters: int) -> float:
    """E divergence^2 of SGD without synchronisation: d (M-1)/M sigma^2 sum eta_s^2.

    Lemma 3.1 of the paper with its constant corrected ((M-1)/M, printed (M+1)/M) and the missing factor d.
    """
    return parameters * consensus_factor(ranks) * std**2 * float(np.sum(np.square(rates)))


def strike_offset(size: float, *, lr: float, momentum: float, steps: int) -> float:
    """How far a rank's weight is off, `steps` updates (the struck one included) after its gradient was off by `size`.

    eta delta (1 - mu^k) / (1 - mu); DDP never heals it.
    """
    return lr * size * momentum_factor(steps, momentum)


def adam_growth(
    steps: int,
    *,
    ranks: int = 4,
    betas: tuple[float, float] = (0.9, 0.999),
    samples: int = 50_000,
    seed: int = 0,
) -> Floats:
    """divergence^2 / (d lr^2) of Adam after each of `steps` steps of pure noise (no true gradient, sigma >> eps), [t].

    Seeded Monte Carlo over `samples` coordinates, unbiased, relative error about sqrt(2 / (samples (M-1))); no closed
    form is known to us past step 1, where every update is a random sign and the value is (M-1)/M. sigma cancels.
    """
    generator = np.random.default_rng(seed)
    first, second, offset = (np.zeros((ranks, samples)) for _ in range(3))
    growth = np.zeros(steps)
    for step in range(1, steps + 1):
        noise = generator.standard_normal((ranks, samples))
        first += (1.0 - betas[0]) * (noise - first)
        second += (1.0 - betas[1]) * (noise**2 - second)
        offset -= first / (1.0 - betas[0] ** step) / np.sqrt(second / (1.0 - betas[1] ** step))
        growth[step - 1] = offset.var(axis=0).mean()
    return growth
