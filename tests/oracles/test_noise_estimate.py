"""The noise that PAFT-Dyn reads off the drift of the replicas, against the noise that was injected."""

import numpy as np
import pytest
import torch
from quadratic_runs import STD, quadratic, step
from torch import Tensor, nn

from paftbench import specs, theory
from paftbench.ranks.axis import Ranks
from paftbench.training.virtual import Virtual

DIM = 20_000


def estimates(
    period: int, *, syncs: int, optimizer: str = "sgd", momentum: float = 0.9, **fields: object
) -> list[float]:
    """sigma-hat at each synchronisation of a run with noise of std `STD`."""
    noise = specs.fault("gaussian_noise", degree=STD, unit="std", site="result")
    fixed = specs.mitigation("paft_dyn", period=period, period_min=period, period_max=period, **fields)
    virtual = quadratic(
        dim=DIM, curvature=1.0, optimizer=optimizer, momentum=momentum, faults=[noise], mitigations=[fixed]
    )
    found: list[float] = []
    while len(found) < syncs:
        step(virtual)
        found += sigma_of(virtual)
    return found


def sigma_of(virtual: Virtual) -> list[float]:
    decision = virtual.pipeline.measured.decision
    return [] if decision is None else [decision.sigma]


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("state", ["params", "all", "reset"])
@pytest.mark.parametrize("period", [2, 5, 10])
def test_sigma_is_within_5_percent_at_every_synchronisation(period: int, state: str, overlap: bool) -> None:
    found = estimates(period, syncs=6, state=state, overlap=overlap)
    assert found == pytest.approx([STD] * 6, rel=0.05)


@pytest.mark.parametrize("momentum", [0.0, 0.5, 0.99])
def test_sigma_is_right_whatever_the_momentum(momentum: float) -> None:
    assert estimates(5, syncs=5, momentum=momentum) == pytest.approx([STD] * 5, rel=0.05)


@pytest.mark.parametrize(("period", "factor"), [(2, 2.09), (5, 1.66), (10, 1.38)])
def test_without_the_carried_momentum_sigma_would_be_too_large_by_the_known_factor(period: int, factor: float) -> None:
    """What the design says of estimates that forget that `state: params` leaves momentum apart."""
    found = estimates(period, syncs=30, state="params")[-1]
    naive = np.sqrt(sum(((1 - 0.9**k) / 0.1) ** 2 for k in range(1, period + 1)))
    drift = np.sqrt(theory.params_peak(period, 0.9))
    assert found * drift / naive == pytest.approx(STD * factor, rel=0.03)


@pytest.mark.parametrize("state", ["params", "all"])
@pytest.mark.parametrize("optimizer", ["adam", "adamw"])
def test_sigma_under_adam_is_right_once_its_second_moment_holds_still(optimizer: str, state: str) -> None:
    """At first v is the mean of few squares that hold the same noise as what it scales: the estimate starts low."""
    found = estimates(10, syncs=10, optimizer=optimizer, state=state)
    assert found[0] < 0.5 * STD
    assert found[6:] == pytest.approx([STD] * 4, rel=0.05)


def test_sigma_follows_a_learning_rate_that_changes_between_synchronisations() -> None:
    noise = specs.fault("gaussian_noise", degree=STD, unit="std", site="result")
    dyn = specs.mitigation("paft_dyn", period=5, period_min=5, period_max=5)
    virtual = quadratic(dim=DIM, momentum=0.9, faults=[noise], mitigations=[dyn])
    found: list[float] = []
    for index in range(40):
        virtual.optimizer.param_groups[0]["lr"] = 0.1 / (1 + index)
        step(virtual)
        found += sigma_of(virtual)
    assert found == pytest.approx([STD] * 8, rel=0.05)


def test_sigma_under_adam_is_right_where_the_optimizer_has_a_past_of_its_own() -> None:
    """As for a training script that attaches late: what counts is the optimizer's step, not ours."""
    noise = specs.fault("gaussian_noise", degree=STD, unit="std", site="result")
    virtual = quadratic(dim=DIM, curvature=1.0, optimizer="adam", faults=[noise], mitigations=[
        specs.mitigation("paft_dyn", period=10, period_min=10, period_max=10, state="all")
    ])  # fmt: skip
    found: list[float] = []
    for index in range(120):
        if index == 100:
            fresh = virtual.pipeline.mitigations[0].init(virtual.layout, virtual.replicas.ranks)
            virtual.pipeline.states[0] = {**fresh, "next": 109}
        step(virtual)
        found += sigma_of(virtual)
    assert found[-2:] == pytest.approx([STD] * 2, rel=0.05)


# --- parameter groups ------------------------------------------------------------------------------------------------


class Halves(nn.Module):
    """Two parameters that every rank pulls towards 1 with the same gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.slow, self.fast = (nn.Parameter(torch.zeros(DIM)) for _ in range(2))

    def forward(self) -> Tensor:
        return ((self.slow - 1).square().sum() + (self.fast - 1).square().sum()) / 2


def grouped(kind: str, groups: list[dict[str, object]], **fields: object) -> Virtual:
    """Noise of std `STD` on two parameters, each in a group of its own."""

    def optimizer_of(owners: list[nn.Parameter]) -> torch.optim.Optimizer:
        classes = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW}
        return classes[kind]([{"params": [owner], **group} for owner, group in zip(owners, groups, strict=True)])

    noise = specs.fault("gaussian_noise", degree=STD, unit="std", site="result")
    dyn = specs.mitigation("paft_dyn", **fields)
    return Virtual(
        Halves(), optimizer_of, Ranks.virtual(4), rank_seeds=range(4), faults=[noise], mitigations=[dyn], split=True
    )


def grouped_step(virtual: Virtual) -> list[float]:
    virtual.backward(lambda module, rank: module())
    virtual.update()
    return sigma_of(virtual)


@pytest.mark.parametrize("state", ["params", "all"])
@pytest.mark.parametrize(
    ("kind", "groups"),
    [
        ("sgd", [{"lr": 0.01, "momentum": 0.9}, {"lr": 0.1, "momentum": 0.9}]),
        ("sgd", [{"lr": 0.1, "momentum": 0.0}, {"lr": 0.01, "momentum": 0.95, "weight_decay": 0.1}]),
        ("adam", [{"lr": 0.01}, {"lr": 0.1}]),
        ("adamw", [{"lr": 0.1, "betas": (0.5, 0.99)}, {"lr": 0.01, "betas": (0.9, 0.999)}]),
    ],
)
def test_sigma_is_within_5_percent_where_parameter_groups_differ_tenfold(
    kind: str, groups: list[dict[str, object]], state: str
) -> None:
    virtual = grouped(kind, groups, period=5, period_min=5, period_max=5, state=state)
    found = [sigma for _ in range(100) for sigma in grouped_step(virtual)]
    settled = found[12:] if kind.startswith("adam") else found
    assert len(found) == 20 and settled == pytest.approx([STD] * len(settled), rel=0.05)


def test_the_period_that_keeps_the_drift_within_its_budget_sums_over_the_groups() -> None:
    """Plain SGD: H = (budget g / sigma)^2 W/(W-1) / mean of lr^2 over the elements."""
    virtual = grouped(
        "sgd", [{"lr": 0.01}, {"lr": 0.1}], rule="consensus", period=4, period_min=1, period_max=10_000, budget=0.5
    )
    for _ in range(4):
        grouped_step(virtual)
    decision = virtual.pipeline.measured.decision
    assert decision is not None
    expected = (0.5 * decision.gradient / decision.sigma) ** 2 * (4 / 3) / ((0.01**2 + 0.1**2) / 2)
    assert decision.period == int(expected) > 10


def test_a_group_that_is_frozen_or_added_later_has_no_drift_of_its_own() -> None:
    virtual = grouped("sgd", [{"lr": 0.0}, {"lr": 0.1}], period=5, period_min=5, period_max=5)
    found = [sigma for _ in range(10) for sigma in grouped_step(virtual)]
    virtual.optimizer.add_param_group({"params": [nn.Parameter(torch.zeros(3))], "lr": 1.0})
    virtual.optimizer.param_groups[0]["lr"] = 0.02
    found += [sigma for _ in range(10) for sigma in grouped_step(virtual)]
    assert found == pytest.approx([STD] * 4, rel=0.05)
