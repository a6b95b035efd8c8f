"""The scripts of `examples/`: they run as documented, what they print is so, and detaching leaves plain DDP."""

import copy
import importlib.util
import io
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from functools import cache
from types import ModuleType
from typing import Any

import pytest
import torch
import torch.distributed as dist
from support.checkout import ROOT
from support.processes import together
from support.user_loop import bits
from torch.nn.parallel import DistributedDataParallel

import paftbench
from paftbench.attachment.facade import Attachment

EXAMPLES = ROOT / "examples"
NAMES = ["ddp_loop", "accumulation_amp", "accelerate_loop", "hf_trainer"]
STEPS, AFTERWARDS = 10, 4
ABORTED = "terminate called without an active exception"


def example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@dataclass(kw_only=True)
class Loop:
    """An example's model and loop; `more` is what has a state beside the model, the optimizer first."""

    ddp: DistributedDataParallel
    more: list[Any]
    train: Callable[[int], Any]
    attach: list[Any] = field(default_factory=list)

    def load(self, other: "Loop") -> None:
        self.ddp.load_state_dict(other.ddp.state_dict())
        for mine, theirs in zip(self.more, other.more, strict=True):
            mine.load_state_dict(copy.deepcopy(theirs.state_dict()))


def ddp_loop(script: ModuleType) -> Loop:
    ddp, optimizer, scheduler = script.build(STEPS + AFTERWARDS)
    return Loop(
        ddp=ddp,
        more=[optimizer, scheduler],
        train=lambda steps: script.train(ddp, optimizer, scheduler, steps),
        attach=[ddp, optimizer],
    )


def accumulation_amp(script: ModuleType) -> Loop:
    ddp, optimizer, scaler = script.build()
    return Loop(
        ddp=ddp,
        more=[optimizer, scaler],
        train=lambda steps: script.train(ddp, optimizer, scaler, steps),
        attach=[ddp, optimizer, scaler],
    )


def accelerate_loop(script: ModuleType) -> Loop:
    accelerator, ddp, optimizer, loader = script.build()
    return Loop(
        ddp=ddp,
        more=[optimizer],
        train=lambda steps: script.train(accelerator, ddp, optimizer, loader, steps),
        attach=[ddp, optimizer],
    )


def as_a_rank(name: str) -> ModuleType:
    """The example, in a process that looks like one of torchrun's."""
    rank, size = str(dist.get_rank()), str(dist.get_world_size())
    os.environ.update(RANK=rank, LOCAL_RANK=rank, WORLD_SIZE=size, LOCAL_WORLD_SIZE=size, HF_HUB_OFFLINE="1")
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="1", ACCELERATE_USE_CPU="true")
    return example(name)


def divergence_by_hand(ddp: DistributedDataParallel) -> float:
    flat = torch.cat([p.detach().flatten().double() for p in ddp.parameters() if p.requires_grad])
    copies = [torch.empty_like(flat) for _ in range(dist.get_world_size())]
    dist.all_gather(copies, flat)
    away = torch.stack(copies) - torch.stack(copies).mean(0)
    return float(away.square().sum(1).mean().sqrt())


def printed(script: ModuleType, *, unprotected: bool) -> list[str]:
    out = io.StringIO()
    with redirect_stdout(out):
        script.main(STEPS, unprotected=unprotected)
    return out.getvalue().splitlines()


def struck(loop: Loop, script: ModuleType, mitigations: Sequence[Any]) -> Attachment:
    with paftbench.attach(*loop.attach, faults=script.FAULTS, mitigations=mitigations, seed=0) as attached:
        loop.train(STEPS)
    return attached


def looped(name: str) -> dict[str, Any]:
    """An example's loop: what it prints, the same by hand, and how it goes on once detached."""
    script = as_a_rank(name)
    loop_of = {"ddp_loop": ddp_loop, "accumulation_amp": accumulation_amp, "accelerate_loop": accelerate_loop}[name]
    found: dict[str, Any] = {"printed": printed(script, unprotected=False)}
    found["unprotected"] = printed(script, unprotected=True)
    loop, never = loop_of(script), loop_of(script)
    attached = struck(loop, script, script.MITIGATIONS)
    found["by hand"] = (attached.strikes.landed, attached.syncs, divergence_by_hand(loop.ddp))
    never.train(STEPS)
    found["changed"] = bits(never.ddp) != bits(loop.ddp)
    never.load(loop)
    for one in (loop, never):
        one.train(AFTERWARDS)
    found["same"] = bits(never.ddp) == bits(loop.ddp)
    return found


def trainer(name: str) -> dict[str, Any]:
    """The same for the Trainer, whose loop is its own: trained on by a second `train()`."""
    from transformers import set_seed

    script = as_a_rank(name)
    found: dict[str, Any] = {"printed": printed(script, unprotected=False)}
    found["unprotected"] = printed(script, unprotected=True)
    loop, never = (script.build(STEPS, "unused") for _ in range(2))
    callback = script.Paftbench(loop, script.MITIGATIONS)
    loop.add_callback(callback)
    for one in (loop, never):
        set_seed(1)
        one.train()
    attached, ddp = callback.attached, loop.model_wrapped
    found["by hand"] = (attached.strikes.landed, attached.syncs, divergence_by_hand(ddp))
    loop.remove_callback(callback)
    found["changed"] = bits(loop.model) != bits(never.model)
    never.model.load_state_dict(loop.model.state_dict())
    never.optimizer.load_state_dict(copy.deepcopy(loop.optimizer.state_dict()))
    for one in (loop, never):
        set_seed(2)
        one.train()
    found["same"] = bits(loop.model) == bits(never.model) and loop.model_wrapped is ddp
    return found


def torchrun(name: str) -> list[str]:
    """What the script prints when it is run as its first lines say."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    script = EXAMPLES / f"{name}.py"
    assert f"torchrun --standalone --nproc-per-node 2 examples/{name}.py\n" in script.read_text()
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    for _ in range(2):
        ended = subprocess.run(
            [*command, str(script), "--steps", str(STEPS)], env=environment, capture_output=True, text=True, timeout=120
        )
        # gloo's threads abort an interpreter that ends now and then, also without paftbench: all was printed by then.
        if ended.returncode == 0 or ABORTED not in ended.stderr:
            break
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.splitlines()


def said(lines: Sequence[str], about: str) -> str:
    (found,) = [line for line in lines if line.startswith(about)]
    return found.partition(": ")[2]


@cache
def ranks_of(name: str) -> list[dict[str, Any]]:
    return together(trainer if name == "hf_trainer" else looped, 2, name, limit_s=150.0)


@pytest.mark.parametrize("name", NAMES)
def test_an_example_is_struck_and_its_mitigation_makes_the_replicas_equal(name: str) -> None:
    ranks = ranks_of(name)
    lines, unprotected = ranks[0]["printed"], ranks[0]["unprotected"]
    strikes = [rank["by hand"][0] for rank in ranks]
    syncs = STEPS // example(name).MITIGATIONS[-1].period
    assert max(strikes) > 0 and syncs > 0
    assert [rank["by hand"][1:] for rank in ranks] == [(syncs, 0.0)] * 2
    assert said(lines, "synchronisations") == str(syncs) and said(lines, "divergence") == "0.000e+00"
    assert said(unprotected, "synchronisations") == "0" and float(said(unprotected, "divergence")) > 0
    expected = {"rank 0": str(strikes[0]), "all ranks": str(sum(strikes)), "each rank": "{} {}".format(*strikes)}
    (whose,) = [line.partition(":")[0] for line in lines if line.startswith("strikes on ")]
    assert said(lines, whose) == said(unprotected, whose) == expected[whose.removeprefix("strikes on ")]


@pytest.mark.parametrize("name", NAMES)
def test_an_example_trains_on_as_plain_ddp_once_detached(name: str) -> None:
    for rank in ranks_of(name):
        assert rank["changed"] and rank["same"]


@pytest.mark.parametrize(
    "name", ["ddp_loop", *(pytest.param(name, marks=pytest.mark.slow) for name in NAMES if name != "ddp_loop")]
)
def test_an_example_runs_as_its_first_lines_say_and_prints_what_happened(name: str) -> None:
    ours = [line for line in ranks_of(name)[0]["printed"] if not line.startswith("{")]
    assert [line for line in torchrun(name) if not line.startswith("{")] == ours  # in braces: the Trainer's own, timed
    assert len(ours) >= 3
