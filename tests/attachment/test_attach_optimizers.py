"""`paftbench.attach` on the optimizers, parameter groups and schedules that people train with."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from support.processes import together
from support.user_loop import bits, build, loss_of, sgd, train
from test_attach import noise, refusal, sync
from torch import nn, optim
from torch.nn.parallel import DistributedDataParallel

import paftbench

Maker = Callable[[list[nn.Parameter]], optim.Optimizer]

OPTIMIZERS: dict[str, Maker] = {
    "sgd": lambda p: optim.SGD(p, lr=0.1),
    "nesterov": lambda p: optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=1e-3),
    "foreach sgd": lambda p: optim.SGD(p, lr=0.1, momentum=0.9, dampening=0.1, foreach=True),
    "fused sgd": lambda p: optim.SGD(p, lr=0.1, momentum=0.9, fused=True),
    "adam": lambda p: optim.Adam(p, lr=0.01),
    "fused adam": lambda p: optim.Adam(p, lr=0.01, fused=True, amsgrad=True),
    "foreach adamw": lambda p: optim.AdamW(p, lr=0.01, foreach=True),
    "fused adamw": lambda p: optim.AdamW(p, lr=0.01, fused=True),
    "tensor lr": lambda p: optim.Adam(p, lr=torch.tensor(0.01), foreach=False),
    "nadam": lambda p: optim.NAdam(p, lr=0.01),
    "radam": lambda p: optim.RAdam(p, lr=0.01),
    "adamax": lambda p: optim.Adamax(p, lr=0.01),
    "adagrad": lambda p: optim.Adagrad(p, lr=0.05),
    "fused adagrad": lambda p: optim.Adagrad(p, lr=0.05, fused=True),
    "adadelta": lambda p: optim.Adadelta(p),
    "rmsprop": lambda p: optim.RMSprop(p, lr=0.01, momentum=0.9, centered=True),
    "asgd": lambda p: optim.ASGD(p, lr=0.05),
    "rprop": lambda p: optim.Rprop(p, lr=0.01),
}


def made(maker: Maker, ddp: nn.Module) -> optim.Optimizer:
    return maker([p for p in ddp.parameters() if p.requires_grad])


def rows(values: list[torch.Tensor]) -> torch.Tensor:
    """Every rank's copy of some tensors, as one row each."""
    flat = torch.cat([value.detach().double().flatten() for value in values])
    found = [torch.empty_like(flat) for _ in range(dist.get_world_size())]
    dist.all_gather(found, flat)
    return torch.stack(found)


def apart(values: list[torch.Tensor]) -> float:
    return float((rows(values) - rows(values)[0]).abs().max())


def state_of(optimizer: optim.Optimizer) -> list[torch.Tensor]:
    return [value for state in optimizer.state.values() for value in state.values() if isinstance(value, torch.Tensor)]


def each(names: list[str]) -> dict[str, Any]:
    found = {}
    for name in names:
        maker = OPTIMIZERS[name]
        native, idle, struck = build(), build(), build()
        plain, ours, shaken = made(maker, native), made(maker, idle), made(maker, struck)
        train(native, plain, range(4))
        with paftbench.attach(idle, ours, faults=noise(degree=0.0), mitigations=sync(period=2, state="all")):
            train(idle, ours, range(4))
        with paftbench.attach(struck, shaken, faults=noise(), mitigations=sync(period=4, state="all")) as attached:
            train(struck, shaken, range(3))
            parted = attached.divergence()
            train(struck, shaken, range(3, 4))
        found[name] = {
            "alike": bits(idle) == bits(native) and len(state_of(ours)) == len(state_of(plain)), "parted": parted,
            "healed": attached.divergence(), "state": apart(state_of(shaken)) if state_of(shaken) else 0.0,
        }  # fmt: skip
    return found


@pytest.mark.parametrize("world_size", [2, 3])
def test_every_element_wise_optimizer_is_left_alone_and_is_averaged_with_its_state(world_size: int) -> None:
    for rank in together(each, world_size, list(OPTIMIZERS)[world_size % 2 :: 2]):
        for name, found in rank.items():
            assert found["alike"] and found["parted"] > 0, name
            assert found["healed"] == 0.0 and found["state"] == 0.0, (name, found)


# --- parameter groups and schedules --------------------------------------------------------------------------------

STD = 0.3


class Pair(nn.Module):
    """Two large parameters, which the loss pulls gently to 1."""

    def __init__(self) -> None:
        super().__init__()
        self.slow, self.fast = (nn.Parameter(torch.zeros(20_000)) for _ in range(2))

    def forward(self) -> torch.Tensor:
        return ((self.slow - 1).square().sum() + (self.fast - 1).square().sum()) / 200


def pair() -> DistributedDataParallel:
    return DistributedDataParallel(Pair(), bucket_cap_mb=0.05)


def grouped(ddp: nn.Module, kind: str) -> optim.Optimizer:
    slow, fast = ddp.parameters()
    if kind == "sgd":
        return optim.SGD([
            {"params": [slow], "lr": 0.01, "momentum": 0.0, "weight_decay": 0.1},
            {"params": [fast], "lr": 0.1, "momentum": 0.9},
        ])  # fmt: skip
    return optim.AdamW([{"params": [slow], "lr": 0.001}, {"params": [fast], "lr": 0.01, "betas": (0.8, 0.99)}])


SCHEDULES: dict[str, Callable[[optim.Optimizer], Any]] = {
    "constant": lambda o: optim.lr_scheduler.ConstantLR(o, factor=1.0),
    "lambda": lambda o: optim.lr_scheduler.LambdaLR(o, [lambda t: 0.9**t, lambda t: 1 / (1 + t)]),
    "one cycle": lambda o: optim.lr_scheduler.OneCycleLR(o, max_lr=[0.01, 0.1], total_steps=80, cycle_momentum=True),
    "plateau": lambda o: optim.lr_scheduler.ReduceLROnPlateau(o, patience=2, factor=0.5),
}


def scheduled(name: str, kind: str, **fields: Any) -> dict[str, Any]:
    """sigma-hat of PAFT-Dyn at each synchronisation, and what the schedule did."""
    ddp = pair()
    optimizer = grouped(ddp, kind)
    schedule = SCHEDULES[name](optimizer)
    dyn = paftbench.Mitigation(
        "paft_dyn", **{"rule": "consensus", "period": 5, "period_min": 5, "period_max": 5, **fields}
    )
    found, rates = [], []
    with paftbench.attach(ddp, optimizer, faults=noise(degree=STD), mitigations=[dyn]) as attached:
        for step in range(60):
            optimizer.zero_grad()
            loss = ddp()
            loss.backward()
            optimizer.step()
            rates.append([float(group["lr"]) for group in optimizer.param_groups])
            if name == "plateau":
                schedule.step(1.0)
            else:
                schedule.step()
            if step == 30:  # parameters of another model do not concern the attachment
                optimizer.add_param_group({"params": [nn.Parameter(torch.ones(3))], "lr": 5.0})
                if name != "constant":
                    optimizer.param_groups.pop()
            if (decision := attached._hooks.pipeline.measured.decision) is not None:
                found.append(decision.sigma)
    return {"sigma": found, "moved": rates[0] != rates[-1][:2], "steps": attached.steps}


def every_schedule() -> dict[str, Any]:
    found = {f"sgd {name}": scheduled(name, "sgd") for name in SCHEDULES}
    found["sgd overlapped"] = scheduled("lambda", "sgd", overlap=True, state="all")
    found["adamw constant"] = scheduled("constant", "adamw", state="all")
    return found


def test_sigma_is_within_5_percent_whatever_the_groups_and_schedules() -> None:
    for rank in together(every_schedule, 3):
        for name, found in rank.items():
            settled = found["sigma"][8:] if name.startswith("adamw") else found["sigma"]
            assert len(found["sigma"]) >= 9 and found["steps"] == 60
            assert settled == pytest.approx([STD] * len(settled), rel=0.05), name
            assert found["moved"] == ("constant" not in name), name


def frozen_and_fast() -> tuple[float, float, float]:
    """A group with lr 0, one with momentum, one without: divergence before and after a synchronisation."""
    ddp = build()
    first, second, *rest = [p for p in ddp.parameters() if p.requires_grad]
    groups = [
        {"params": [first], "lr": 0.0},
        {"params": [second], "lr": 0.01},
        {"params": rest, "lr": 0.1, "momentum": 0.9},
    ]
    optimizer = optim.SGD(groups, lr=0.1)
    start = first.detach().clone()
    with paftbench.attach(ddp, optimizer, faults=noise(), mitigations=sync(period=3, state="all")) as attached:
        train(ddp, optimizer, range(2))
        before = attached.divergence()
        train(ddp, optimizer, range(2, 3))
        after = attached.divergence()
    assert torch.equal(first, start)
    return before, after, apart(state_of(optimizer))


def test_groups_that_are_fixed_slow_or_fast_are_averaged_alike() -> None:
    for before, after, state in together(frozen_and_fast, 2):
        assert before > 0 and after == 0.0 and state == 0.0


# --- refused ---------------------------------------------------------------------------------------------------------


class Hollow(optim.Optimizer):
    """A wrapper that hides what it wraps."""

    def __init__(self, inner: optim.Optimizer) -> None:
        self.inner = inner
        self.param_groups = inner.param_groups


def refused() -> dict[str, str]:
    ddp = build()
    optimizer = sgd(ddp)
    found = {
        "lbfgs": refusal(lambda: paftbench.attach(ddp, optim.LBFGS([p for p in ddp.parameters() if p.requires_grad]))),
        "hollow": refusal(lambda: paftbench.attach(ddp, Hollow(optimizer))),
        "none": refusal(lambda: paftbench.attach(ddp, None)),  # type: ignore[arg-type]
        "factory": refusal(lambda: paftbench.attach(ddp, optim.SGD)),  # type: ignore[arg-type]
    }
    sparse = DistributedDataParallel(nn.Sequential(nn.Embedding(5, 3, sparse=True)))
    found["sparse"] = refusal(lambda: paftbench.attach(sparse, optim.SparseAdam(sparse.parameters())))

    def factored(**fields: Any) -> None:
        model = build()
        own = optim.Adafactor([p for p in model.parameters() if p.requires_grad])
        with paftbench.attach(model, own, faults=noise(), mitigations=sync(period=2, **fields)) as attached:
            train(model, own, range(4))
            assert attached.divergence() == 0.0

    found["adafactor"] = refusal(factored)
    found["adafactor, all"] = refusal(lambda: factored(state="all"))
    found["adafactor, reset"] = refusal(lambda: factored(state="reset"))
    other = build()
    other_optimizer = sgd(other)

    def wrong_one() -> None:
        optimizer = sgd(other)
        with paftbench.attach(other, other_optimizer):
            train(other, optimizer, range(2))

    found["another of the model's"] = refusal(wrong_one)
    assert loss_of(other, 3).isfinite()
    return found


def test_optimizers_whose_updates_are_no_steps_are_refused_with_the_reason() -> None:
    (found,) = together(refused, 1)
    expected = {
        "lbfgs": "Refused: optimizer LBFGS cannot be attached: it evaluates the loss several times per update",
        "hollow": "Refused: optimizer Hollow wraps another and its step hooks never run; pass the optimizer inside",
        "none": "Refused: the optimizer must be a torch.optim.Optimizer, got NoneType",
        "factory": "Refused: the optimizer must be a torch.optim.Optimizer, got type",
        "sparse": "Refused: module '0' has sparse gradients, which have no flat indices; set sparse=False",
        "adafactor, all": "Refused: optimizer Adafactor keeps 'row_var', which is not one value per element, so ",
        "adafactor, reset": "Refused: optimizer Adafactor keeps 'row_var', which is not one value per element, so ",
        "another of the model's": "RuntimeError: the attached optimizer was never stepped: 2 backward passes, but no ",
    }
    for case, start in expected.items():
        assert found.pop(case).startswith(start), case
    assert found == {"adafactor": ""}
