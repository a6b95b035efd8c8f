"""What `docs/limits.md` says of other ways to train in parallel: refusals happen, and what is said of FSDP2 holds."""

import re
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from support.checkout import ROOT
from support.processes import together
from torch import Tensor, nn
from torch.distributed._composable.replicate import replicate
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, post_localSGD_hook, powerSGD_hook
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.optim import PostLocalSGDOptimizer, ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

import paftbench

PAGE = (ROOT / "docs" / "limits.md").read_text()


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 4))


def sgd(model: nn.Module) -> torch.optim.SGD:
    return torch.optim.SGD(model.parameters(), lr=0.1)


def train(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int) -> None:
    for step in range(steps):
        generator = torch.Generator().manual_seed(10 * step + dist.get_rank())
        optimizer.zero_grad()
        model(torch.randn(5, 6, generator=generator)).square().sum().backward()
        optimizer.step()


def noise() -> list[Any]:
    return [paftbench.Fault("gaussian_noise", degree=0.1, unit="std", site="result")]


def rows(flat: Tensor) -> Tensor:
    """Every rank's copy of a vector."""
    found = [torch.empty_like(flat) for _ in range(dist.get_world_size())]
    dist.all_gather(found, flat)
    return torch.stack(found)


def error_of(action: Callable[[], Any]) -> str:
    try:
        action()
    except (ValueError, RuntimeError) as error:
        return str(error)
    return "nothing was refused"


# --- refused ---------------------------------------------------------------------------------------------------------


def refusals() -> dict[str, str]:
    def attached(model: nn.Module) -> str:
        return error_of(lambda: paftbench.attach(model, sgd(model), faults=noise()))  # type: ignore[arg-type]

    def hooked(state: Any, hook: Callable[..., Any]) -> str:
        ddp = DistributedDataParallel(net())
        ddp.register_comm_hook(state, hook)
        return attached(ddp)

    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    found = {
        "plain": attached(net()),
        "DataParallel": attached(nn.DataParallel(net())),
        "FSDP2": attached(fully_shard(net(), mesh=mesh)),
        "FSDP1": attached(FullyShardedDataParallel(net(), device_id=torch.device("cpu"))),
        "replicate": attached(replicate(net())),
        "PowerSGD": hooked(powerSGD_hook.PowerSGDState(None), powerSGD_hook.powerSGD_hook),
        "bf16": hooked(None, default_hooks.bf16_compress_hook),
        "local SGD": hooked(
            post_localSGD_hook.PostLocalSGDState(None, None, start_localSGD_iter=2),
            post_localSGD_hook.post_localSGD_hook,
        ),
    }
    ddp = DistributedDataParallel(net())
    optimizers = {
        "part": torch.optim.SGD(list(ddp.parameters())[:2], lr=0.1),
        "ZeRO": ZeroRedundancyOptimizer(ddp.parameters(), optimizer_class=torch.optim.Adam, lr=0.1),
        "averaging": PostLocalSGDOptimizer(sgd(ddp), PeriodicModelAverager(period=2)),
        "LBFGS": torch.optim.LBFGS(ddp.parameters()),
    }
    for case, optimizer in optimizers.items():
        found[case] = error_of(lambda optimizer=optimizer: paftbench.attach(ddp, optimizer))  # type: ignore[misc]
    paftbench.attach(ddp, sgd(ddp)).detach()
    found["hook later"] = error_of(lambda: ddp.register_comm_hook(None, default_hooks.bf16_compress_hook))
    torch._dynamo.config.optimize_ddp = "python_reducer"
    found["Python reducer"] = attached(DistributedDataParallel(net()))
    return found


def test_every_refusal_on_the_page_happens_in_these_words() -> None:
    found, other = together(refusals, 2)
    assert found == other
    wrapped = "the model must be wrapped in DistributedDataParallel, got "
    expected = {
        "plain": wrapped + "Sequential",
        "DataParallel": wrapped + "DataParallel",
        "FSDP2": wrapped + "FSDPSequential",
        "FSDP1": wrapped + "FullyShardedDataParallel",
        "replicate": wrapped + "DDPSequential",
        "PowerSGD": "the model already has a communication hook (powerSGD_hook), and DDP takes only one",
        "bf16": "the model already has a communication hook (bf16_compress_hook), and DDP takes only one",
        "local SGD": "the model already has a communication hook (post_localSGD_hook), and DDP takes only one",
        "part": "the optimizer does not update parameter '2.weight' of the model",
        "ZeRO": "optimizer ZeroRedundancyOptimizer cannot be attached: ",
        "averaging": "optimizer PostLocalSGDOptimizer cannot be attached: ",
        "LBFGS": "optimizer LBFGS cannot be attached: ",
        "hook later": "register_comm_hook or register_builtin_comm_hook can only be called once.",
        "Python reducer": "the model was built with torch._dynamo.config.optimize_ddp = 'python_reducer', ",
    }
    page = re.sub(r"\s+", " ", PAGE)
    for case, start in expected.items():
        assert found.pop(case).startswith(start), case
        named = re.findall(r"got (\w+)$|\((\w+_hook)\)", start)
        words = [word for pair in named for word in pair if word] or [start.strip(", ")]
        assert all(word in page for word in words), case
    assert not found
    assert wrapped + "Sequential" in page and expected["PowerSGD"] in page


def joined() -> tuple[str, int]:
    ddp = DistributedDataParallel(net())
    optimizer = sgd(ddp)
    with paftbench.attach(ddp, optimizer, faults=noise()) as attached:
        train(ddp, optimizer, 1)

        def uneven() -> None:
            with ddp.join():
                train(ddp, optimizer, 2 + dist.get_rank())

        message = error_of(uneven)
    with ddp.join():
        train(ddp, optimizer, 2 + dist.get_rank())
    return message, attached.steps


def test_uneven_inputs_are_refused_on_every_rank_and_work_after_detaching() -> None:
    start = "join() with uneven inputs"
    for message, steps in together(joined, 2):
        assert message.startswith(start) and start in PAGE and steps == 1


# --- FSDP2 and HSDP --------------------------------------------------------------------------------------------------


def snippet() -> dict[str, Any]:
    """The functions of the page's Python block."""
    found = re.search(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert found is not None
    names: dict[str, Any] = {}
    exec(compile(found.group(1), "docs/limits.md", "exec"), names)
    return names


def train_sharded(mesh: DeviceMesh, *, std: float, average_at: int | None = None) -> Tensor:
    """Every rank's view of the whole model after four steps; averaged over replicas after step `average_at`."""
    page = snippet()
    model = fully_shard(net(), mesh=mesh)
    if std:
        page["add_noise"](model, std, seed=dist.get_rank())
    optimizer = sgd(model)
    for step in range(4):
        generator = torch.Generator().manual_seed(10 * step + dist.get_rank())
        optimizer.zero_grad()
        model(torch.randn(5, 6, generator=generator)).square().sum().backward()
        optimizer.step()
        if step == average_at:
            page["average_replicas"](model, mesh)
    return rows(torch.cat([parameter.full_tensor().detach().flatten() for parameter in model.parameters()]))


def hybrid() -> dict[str, list[list[bool]]]:
    """Which ranks agree in every bit, with noise on all of them."""
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
    found = {}
    for case, std, step in (("clean", 0.0, None), ("struck", 0.1, None), ("averaged", 0.1, 3), ("earlier", 0.1, 1)):
        copies = train_sharded(mesh, std=std, average_at=step)
        found[case] = [[torch.equal(one, other) for other in copies] for one in copies]
    return found


def test_replicas_of_hsdp_drift_apart_under_noise_and_the_page_s_averaging_repairs_them() -> None:
    equal, apart = [[True] * 4] * 4, [[True, True, False, False]] * 2 + [[False, False, True, True]] * 2
    for found in together(hybrid, 4):
        assert found == {"clean": equal, "struck": apart, "averaged": equal, "earlier": apart}


def sharded() -> tuple[bool, bool, float]:
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    clean, struck = train_sharded(mesh, std=0.0), train_sharded(mesh, std=0.1)
    agree = torch.equal(clean[0], clean[1]), torch.equal(struck[0], struck[1])
    return *agree, float((struck - clean).abs().max())


def test_ranks_of_fsdp_agree_on_parameters_that_noise_made_wrong() -> None:
    for clean, struck, error in together(sharded, 2):
        assert clean and struck and error > 0.01
