"""`paftbench.attach` on compiled models: the same bits as without it, strikes that land, nothing compiled anew."""

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch._dynamo
import torch.distributed as dist
from support.processes import together
from support.user_loop import bits, sgd
from torch import Tensor, nn
from torch._dynamo.utils import counters
from torch.nn.parallel import DistributedDataParallel

import paftbench

WIDTH = 512  # a weight of 1 MB, DDP's first bucket; smaller caps than that torch.compile does not accept


class Wide(nn.Module):
    """Three buckets' worth of layers, one of them frozen."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(16, WIDTH)
        self.frozen = nn.Linear(WIDTH, WIDTH).requires_grad_(False)
        self.layers = nn.ModuleList([nn.Linear(WIDTH, WIDTH) for _ in range(3)])
        self.last = nn.Linear(WIDTH, 1)

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.tanh(self.frozen(torch.tanh(self.first(x))))
        for layer in self.layers:
            hidden = hidden + torch.tanh(layer(hidden))
        out: Tensor = self.last(hidden)
        return out


def ddp_of(model: nn.Module) -> DistributedDataParallel:
    return DistributedDataParallel(model, bucket_cap_mb=1)


def in_place(model: nn.Module, backend: str) -> nn.Module:
    model.compile(backend=backend)
    return ddp_of(model)


def part(model: nn.Module, backend: str) -> nn.Module:
    model.layers[1] = torch.compile(model.layers[1], backend=backend)  # type: ignore[index, operator]
    return ddp_of(model)


FORMS: dict[str, Callable[[nn.Module, str], Any]] = {
    "compile(ddp)": lambda model, backend: torch.compile(ddp_of(model), backend=backend),
    "ddp(compile)": lambda model, backend: ddp_of(torch.compile(model, backend=backend)),  # type: ignore[arg-type]
    "model.compile": in_place,
    "a compiled part": part,
}


def loss_of(model: nn.Module, step: int) -> Tensor:
    generator = torch.Generator().manual_seed(100 * step + dist.get_rank())
    return model(torch.randn(4, 16, generator=generator)).square().mean()


def train(model: nn.Module, optimizer: torch.optim.Optimizer, steps: range) -> None:
    for step in steps:
        optimizer.zero_grad()
        loss_of(model, step).backward()
        optimizer.step()


def built(form: str, backend: str) -> tuple[Any, torch.optim.Optimizer]:
    # torch.compile looks at the .grad of what a compiled part is given.
    warnings.filterwarnings("ignore", message="The .grad attribute of a Tensor")
    torch._dynamo.reset()
    counters.clear()
    torch.manual_seed(0)
    model = FORMS[form](Wide(), backend)
    return model, sgd(model, lr=0.01)


def in_form(form: str, backend: str) -> dict[str, Any]:
    if backend == "inductor":  # its generated code warns of what it finds on the machine
        warnings.simplefilter("ignore")
    model, optimizer = built(form, backend)
    train(model, optimizer, range(6))
    plain, graphs = bits(model), counters["stats"]["unique_graphs"]
    model, optimizer = built(form, backend)
    zero = paftbench.Fault("gaussian_noise", degree=0.0, unit="std", site="result")
    with paftbench.attach(model, optimizer, faults=[zero], mitigations=[paftbench.Mitigation("paft_sync", period=2)]):
        train(model, optimizer, range(3))
        frames = counters["frames"]["total"]
        train(model, optimizer, range(3, 6))
    found = {
        "alike": bits(model) == plain, "again": counters["frames"]["total"] - frames,
        "graphs": (graphs, counters["stats"]["unique_graphs"]),
    }  # fmt: skip
    flips = paftbench.Fault("bit_flip", degree=1e-3, bits="mantissa", site="contribution", parameters="layers.1.weight")
    noise = paftbench.Fault("gaussian_noise", degree=1e-3, unit="std", site="result", parameters="layers.*")
    sync = paftbench.Mitigation("paft_sync", period=3, overlap=True)
    with paftbench.attach(model, optimizer, faults=[flips, noise], mitigations=[sync]) as attached:
        train(model, optimizer, range(2))
        found["parted"] = attached.divergence()
        train(model, optimizer, range(2, 3))
        loss_of(model, 3).backward()  # discarded by the user
        optimizer.zero_grad()
        loss_of(model, 4).backward()
        optimizer.step()
    slots = attached._hooks.pipeline.replicas.layout.slots
    found |= {
        "names": [slot.name for slot in slots], "steps": attached.steps, "syncs": attached.syncs,
        "landed": attached.strikes.drawn - attached.strikes.discarded == attached.strikes.landed > 0,
    }  # fmt: skip
    return found


def check(results: list[dict[str, Any]]) -> None:
    for rank in results:
        for form, found in rank.items():
            assert found["alike"], form
            assert found["again"] == 0 and found["graphs"][0] == found["graphs"][1] > 0, (form, found)
            assert found["landed"] and found["parted"] > 0 and found["steps"] == 4 and found["syncs"] == 1, (
                form,
                found,
            )
            assert found["names"] == [
                "first.weight", "first.bias", *(f"layers.{n}.{kind}" for n in range(3) for kind in ("weight", "bias")),
                "last.weight", "last.bias",
            ]  # fmt: skip


def compiled_step() -> list[Any]:
    """The optimizer's step compiled, as torch documents it."""
    found = []
    for attached in (False, True):
        torch._dynamo.reset()
        torch.manual_seed(0)
        model = ddp_of(Wide())
        optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.01, momentum=0.9)
        attachment = (
            paftbench.attach(model, optimizer, mitigations=[paftbench.Mitigation("paft_sync", period=2)])
            if attached
            else None
        )
        step = torch.compile(optimizer.step, backend="eager")
        for number in range(4):
            optimizer.zero_grad()
            loss_of(model, number).backward()
            step()
        found.append((bits(model), attachment and (attachment.steps, attachment.syncs)))
    return found


def everything(backend: str, forms: list[str]) -> tuple[dict[str, Any], list[Any]]:
    return {form: in_form(form, backend) for form in forms}, compiled_step()


@pytest.fixture(scope="module")
def eager() -> list[tuple[dict[str, Any], list[Any]]]:
    return together(everything, 2, "eager", ["compile(ddp)", "a compiled part"], limit_s=200)


def test_compiled_models_are_attached_like_any_other(eager: list[Any]) -> None:
    check([forms for forms, _ in eager])


def test_a_compiled_optimizer_step_is_a_step(eager: list[Any]) -> None:
    for _, (plain, ours) in eager:
        assert ours[0] == plain[0] and ours[1] == (4, 2)


@pytest.mark.slow
@pytest.mark.parametrize(("backend", "world_size"), [("aot_eager", 3), ("inductor", 2)])
def test_models_compiled_for_speed_are_attached_like_any_other(backend: str, world_size: int) -> None:
    check([forms for forms, _ in together(everything, world_size, backend, list(FORMS), limit_s=280)])
