"""PAFT-Dyn's rules: each period recomputed from what is logged, the same on all ranks, as in the closed forms."""

import copy
import re
from math import floor
from typing import Any

import pytest
import torch
from oracles.quadratic_runs import quadratic, step

from paftbench import specs
from paftbench.faults.draws import seed_of
from paftbench.mitigations.drift_profile import is_weight
from paftbench.mitigations.paft_dyn import code_period
from paftbench.mitigations.step import Decision
from paftbench.ranks.axis import Ranks
from paftbench.ranks.layout import Layout
from paftbench.records.trial import OptimizerConfig, Trial
from paftbench.training.loop import losses_of
from paftbench.training.optimizers import optimizer_of
from paftbench.training.virtual import Virtual
from paftbench.workloads.gpt2 import Gpt2
from paftbench.workloads.llama2 import Llama2
from paftbench.workloads.quadratic import Quadratic
from paftbench.workloads.resnet import ResNet


def noise(std: float, **fields: Any) -> Any:
    return specs.fault("gaussian_noise", degree=std, unit="std", site="result", **fields)


def decisions(virtual: Virtual, steps: int, rates: list[float] | None = None) -> list[tuple[int, Decision]]:
    """(step, decision) of every synchronisation of a quadratic."""
    found = []
    for index in range(steps):
        if rates is not None:
            virtual.optimizer.param_groups[0]["lr"] = rates[index]
        step(virtual)
        if virtual.pipeline.measured.decision is not None:
            found.append((index, virtual.pipeline.measured.decision))
    return found


def resnet(mitigation: Any, std: float) -> Virtual:
    """A real network under noise, four steps behind it."""
    trial = Trial(
        workload=ResNet(), world_size=3, batch_per_rank=8, steps=30, optimizer=OptimizerConfig(lr=0.1), seed=1,
        faults=(noise(std),), mitigations=(mitigation,), exact=True,
    )  # fmt: skip
    torch.manual_seed(seed_of("model", trial.seed))
    virtual = Virtual(
        trial.workload.model(), optimizer_of(trial.optimizer), Ranks.virtual(3, exact=True), rank_seeds=range(3),
        faults=trial.faults, mitigations=trial.mitigations,
    )  # fmt: skip
    loss_of = losses_of(trial, virtual)
    virtual.loss_at = lambda index: lambda module, rank: loss_of(module, rank, index)  # type: ignore[attr-defined]
    return virtual


def train(virtual: Virtual, steps: range) -> list[tuple[int, Decision]]:
    found = []
    for index in steps:
        virtual.backward(virtual.loss_at(index))  # type: ignore[attr-defined]
        virtual.update()
        if virtual.pipeline.measured.decision is not None:
            found.append((index, virtual.pipeline.measured.decision))
    return found


@pytest.mark.parametrize("fields", [{}, {"state": "all"}, {"overlap": True, "modulo": True}])
def test_a_period_that_cannot_change_is_paft_sync_bit_for_bit(fields: dict[str, Any]) -> None:
    fixed = resnet(specs.mitigation("paft_dyn", period=4, period_min=4, period_max=4, **fields), 1e-2)
    sync = resnet(specs.mitigation("paft_sync", period=4, **{k: v for k, v in fields.items() if k != "modulo"}), 1e-2)
    for virtual in (fixed, sync):
        train(virtual, range(14))
    for ours, theirs in zip(fixed.replicas.parameters, sync.replicas.parameters, strict=True):
        assert torch.equal(ours.view(torch.int32), theirs.view(torch.int32))
    assert fixed.pipeline.periods == sync.pipeline.periods == [4, 4, 4]


def test_overlapped_synchronisations_are_period_steps_after_the_step_that_loaded_the_mean() -> None:
    dyn = specs.mitigation("paft_dyn", period=3, period_min=3, period_max=3, overlap=True)
    found = decisions(quadratic(dim=50, faults=[noise(0.1)], mitigations=[dyn]), 14)
    # Means start after steps 2, 6 and 10, and are loaded in the step after.
    assert [index for index, _ in found] == [3, 7, 11]


def test_with_modulo_the_next_synchronisation_is_the_next_step_that_the_period_divides() -> None:
    """The research code's quirk: from period 10 to 4 after step 9, the next one is step 11, two steps later."""
    dyn = specs.mitigation("paft_dyn", period=10, period_min=4, period_max=4, modulo=True)
    found = decisions(quadratic(dim=50, faults=[noise(0.1)], mitigations=[dyn]), 20)
    assert [index for index, _ in found] == [9, 11, 15, 19]


def test_rule_code_takes_the_layer_where_rank_0_drifted_most_and_its_logged_numbers() -> None:
    virtual = resnet(specs.mitigation("paft_dyn", rule="code", period=3, period_max=50), 1e-3)
    (index, decision), *_ = train(virtual, range(3))
    assert index == 2 and re.search("weight", decision.layer)
    expected = floor(decision.gradient / (decision.spread / 3))
    assert decision.period == max(2, min(50, expected)) and decision.period_before == 3


@pytest.mark.parametrize("kind", ["local", "received"])
def test_rule_code_sees_what_an_independent_computation_sees(kind: str) -> None:
    watched = resnet(specs.mitigation("paft_dyn", rule="code", period=30), 1e-2)
    virtual = resnet(specs.mitigation("paft_dyn", rule="code", period=3, gradient=kind), 1e-2)
    for each in (watched, virtual):
        train(each, range(2))
    twin = copy.deepcopy(watched.modules[0])
    watched.backward(watched.loss_at(2))  # type: ignore[attr-defined]
    received = watched.replicas.gradients[0][1][0].double()
    watched.update()
    layout, drift = watched.layout, {}
    for slot in filter(is_weight, layout.slots):
        rows = watched.replicas.parameters[0][:, slot.start : slot.stop].double()
        drift[slot.name] = float((rows[0] - rows.mean(0)).square().mean().sqrt())
    layer = max(drift, key=drift.__getitem__)
    gradient = received[layout.by_name[layer].start : layout.by_name[layer].stop]
    if kind == "local":
        watched.loss_at(2)(twin, 0).backward()  # type: ignore[attr-defined]
        own = dict(twin.named_parameters())[layer].grad
        assert own is not None
        gradient = own.double()
    ((_, decision),) = train(virtual, range(2, 3))
    assert decision.layer == layer
    assert decision.spread == pytest.approx(drift[layer], rel=1e-5)
    assert decision.gradient == pytest.approx(float(gradient.square().mean().sqrt()), rel=1e-5)


def test_rule_paper_layer_is_the_papers_ratio_at_the_tensor_where_each_rank_drifted_most() -> None:
    watched = resnet(specs.mitigation("paft_dyn", rule="code", period=30, gradient="received"), 1e-3)
    fields = {"period": 3, "period_max": 10_000, "gradient": "received"}
    virtual = resnet(specs.mitigation("paft_dyn", rule="paper_layer", **fields), 1e-3)
    whole = resnet(specs.mitigation("paft_dyn", rule="paper", **fields), 1e-3)
    train(watched, range(2))
    watched.backward(watched.loss_at(2))  # type: ignore[attr-defined]
    received = watched.replicas.gradients[0][1].double()
    watched.update()
    rows = watched.replicas.parameters[0].double()
    moved = rows - rows.mean(0)
    found = []
    for rank in range(3):
        weights = [slice(slot.start, slot.stop) for slot in watched.layout.slots if is_weight(slot)]
        own = max(weights, key=lambda at: float(moved[rank, at].square().mean()))
        found.append(float(received[rank, own].norm() / moved[rank, own].norm()))
    ((_, decision),) = train(virtual, range(3))
    assert decision.period == floor(min(found)) and is_weight(watched.layout.by_name[decision.layer])
    assert decision.gradient / decision.spread == pytest.approx(min(found), rel=1e-5)
    ((_, other),) = train(whole, range(3))
    assert other.layer is None and other.period != decision.period


@pytest.mark.parametrize(("std", "period"), [(1e-6, 10), (10.0, 2)])
@pytest.mark.parametrize("rule", ["paper", "paper_layer", "code", "consensus"])
def test_every_rule_goes_to_its_bounds_without_and_with_much_noise(rule: str, std: float, period: int) -> None:
    virtual = resnet(specs.mitigation("paft_dyn", rule=rule, period=5), std)
    ((_, decision),) = train(virtual, range(5))
    assert decision.period == period


def test_the_received_gradients_own_noise_keeps_rule_code_from_falling() -> None:
    """Noise over noise: the ratio no longer says how much of it there is."""
    virtual = resnet(specs.mitigation("paft_dyn", rule="code", period=5, gradient="received"), 10.0)
    ((_, decision),) = train(virtual, range(5))
    assert decision.period > 4


@pytest.mark.parametrize(
    ("gradient", "spread", "expected"),
    [
        (1.0, 0.0, 10),
        (0.0, 1.0, 2),
        (float("nan"), 1.0, 2),
        (1.0, float("inf"), 2),
        (float("inf"), 1.0, 2),
        (1.0, 0.9, 5),
        (1.0, 1.0, 5),
    ],
)
def test_the_codes_period_is_within_its_bounds_for_any_input(gradient: float, spread: float, expected: int) -> None:
    assert code_period(gradient, spread, 5, 2, 10) == expected


def test_rule_paper_takes_the_smallest_ratio_of_all_ranks() -> None:
    """One rank alone is struck: it is the farthest from the mean, and decides."""
    dyn = specs.mitigation("paft_dyn", rule="paper", period=4, period_min=1, period_max=10_000)
    virtual = quadratic(dim=500, curvature=1.0, lr=1e-3, faults=[noise(0.5, ranks=[2])], mitigations=[dyn])
    ((_, decision),) = decisions(virtual, 4)
    assert decision.period == floor(decision.gradient / decision.spread) > 1
    # 4 steps of noise 0.5 on one of 4 ranks: its distance to the mean is 3/4 of what it moved.
    assert decision.spread == pytest.approx(0.75 * 0.5 * 1e-3 * (4 * 500) ** 0.5, rel=0.1)


def test_rule_consensus_keeps_the_drift_within_its_budget() -> None:
    """With momentum 0 and a constant rate, H = (budget g / (sigma lr))^2 M / (M-1)."""
    dyn = specs.mitigation("paft_dyn", rule="consensus", period=4, period_max=1000, budget=0.5)
    virtual = quadratic(dim=20_000, curvature=1.0, lr=0.1, faults=[noise(1.0)], mitigations=[dyn])
    first = float((virtual.replicas.parameters[0][0] - 1).square().mean().sqrt())
    ((_, decision),) = decisions(virtual, 4)
    expected = (0.5 * decision.gradient / (decision.sigma * 0.1)) ** 2 * 4 / 3
    assert decision.period == floor(expected) > 5
    # The gradient without the noise: that of a bowl after three steps.
    assert decision.gradient == pytest.approx(0.9**3 * first, rel=0.05)


def test_rule_consensus_waits_longer_as_the_learning_rate_falls() -> None:
    dyn = specs.mitigation("paft_dyn", rule="consensus", period=4, period_max=1000, budget=0.2)
    virtual = quadratic(dim=20_000, curvature=1.0, lr=0.1, faults=[noise(1.0)], mitigations=[dyn])
    found = decisions(virtual, 30, rates=[0.1] * 6 + [0.01] * 24)
    assert found[-1][1].period > 10 * found[0][1].period


def test_without_drift_the_period_is_the_longest() -> None:
    for rule in ("paper", "paper_layer", "code", "consensus"):
        dyn = specs.mitigation("paft_dyn", rule=rule, period=2, period_max=7)
        ((_, decision),) = decisions(quadratic(dim=10, curvature=1.0, mitigations=[dyn]), 3)
        assert decision.period == 7 and decision.sigma == 0.0, rule


def test_replicas_that_are_not_finite_are_averaged_as_often_as_allowed() -> None:
    lost = specs.fault("bit_flip", degree=1.0, unit="per_element", bits=30, site="result", ranks=[1])
    for rule in ("paper", "paper_layer", "code", "consensus"):
        dyn = specs.mitigation("paft_dyn", rule=rule, period=2, period_max=7)
        virtual = quadratic(dim=10, curvature=1.0, lr=1e30, momentum=0.9, faults=[lost], mitigations=[dyn])
        periods = [decision.period for _, decision in decisions(virtual, 6)]
        assert periods == [2, 2, 2], rule


def test_a_single_rank_has_no_drift_and_nothing_to_estimate() -> None:
    for rule in ("paper", "paper_layer", "code", "consensus"):
        dyn = specs.mitigation("paft_dyn", rule=rule, period=2, period_max=7)
        alone = quadratic(dim=10, world_size=1, curvature=1.0, faults=[noise(0.1)], mitigations=[dyn])
        ((_, decision),) = decisions(alone, 3)
        assert decision.sigma is None and 2 <= decision.period <= 7, rule


@pytest.mark.parametrize("workload", [ResNet(), Gpt2(), Llama2()])
def test_norm_layers_biases_and_the_lm_head_are_not_profiled(workload: Any) -> None:
    slots = Layout.of(workload.model()).slots
    profiled = [slot.name for slot in slots if is_weight(slot)]
    assert profiled and not any(re.search(r"norm|ln_|bn|bias|lm_head", name) for name in profiled)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"period": 0}, r"period \(steps to the first .*\) must be >= 1, got 0"),
        ({"period_min": 5, "period_max": 4}, "period_min and period_max .*got 5 and 4"),
        ({"period_min": 0}, "period_min and period_max .*got 0 and 10"),
        ({"budget": 0.0}, r"budget \(drift, in RMS gradients\) must be a finite number > 0, got 0.0"),
        ({"rule": "papr"}, "rule: .*'paper', 'paper_layer', 'code' or 'consensus', got 'papr'"),
    ],
)
def test_a_wrong_field_is_named_with_its_meaning_and_value(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        specs.mitigation("paft_dyn", **fields)


@pytest.mark.parametrize(
    "optimizer",
    [
        lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
        lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, dampening=0.5),
        lambda p: torch.optim.RMSprop(p, lr=0.1, momentum=0.9),
        lambda p: torch.optim.NAdam(p),
        lambda p: torch.optim.Adam(p, amsgrad=True),
    ],
)
def test_an_optimizer_with_another_arithmetic_has_no_estimate_and_consensus_refuses_it(optimizer: Any) -> None:
    for rule in ("code", "consensus"):
        dyn = specs.mitigation("paft_dyn", rule=rule, period=2)
        virtual = Virtual(
            Quadratic(dim=20).model(), optimizer, Ranks.virtual(2), rank_seeds=range(2), faults=[noise(0.1)],
            mitigations=[dyn],
        )  # fmt: skip
        virtual.curvature = 1.0  # type: ignore[attr-defined]
        if rule == "consensus":
            with pytest.raises(ValueError, match=r"paft_dyn, rule consensus: optimizer .*: how it turns noise"):
                step(virtual)
        else:
            ((_, decision),) = decisions(virtual, 2)
            assert decision.sigma is None
