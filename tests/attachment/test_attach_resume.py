"""A user's own checkpoints of an attached loop, and what attaching costs to import."""

import io
import json
import subprocess
import sys
from typing import Any

import pytest
import torch
import torch.distributed as dist
from support.processes import together
from support.user_loop import bits, build, loss_of, train
from test_attach import noise, refusal
from torch.amp import GradScaler

import paftbench

STEPS = 12


class Loop:
    """Everything that a user's script holds, on one rank."""

    def __init__(self, mitigation: dict[str, Any], *, scaled: bool, saved: bytes | None = None) -> None:
        self.ddp = build()
        self.optimizer = torch.optim.AdamW([p for p in self.ddp.parameters() if p.requires_grad], lr=0.01)
        self.schedule = torch.optim.lr_scheduler.LinearLR(self.optimizer, total_iters=STEPS)
        self.scaler = GradScaler("cpu", init_scale=64.0, enabled=scaled)
        faults = [
            *noise(degree=1e-3),
            paftbench.Fault("stale_shard", name="stale", degree=0.5, site="result"),
            paftbench.Fault("bit_flip", name="weight", degree=1e-3, bits="mantissa", site="parameter"),
            paftbench.Fault("bit_flip", name="inf", degree=1.0, bits=30, ranks=[1], parameters="layers.*",
                            schedule={"kind": "steps", "steps": [2, 4, 8] if scaled else []}),
        ]  # fmt: skip
        self.attached = paftbench.attach(
            self.ddp,
            self.optimizer,
            self.scaler,
            faults=faults,
            mitigations=[paftbench.Mitigation(**mitigation)],
            exact=True,
        )
        self.step = 0
        if saved is not None:
            state = torch.load(io.BytesIO(saved), weights_only=True)
            for name in ("ddp", "optimizer", "schedule", "scaler", "attached"):
                getattr(self, name).load_state_dict(state[name])
            self.step = state["step"]

    def save(self) -> bytes:
        names = ("ddp", "optimizer", "schedule", "scaler", "attached")
        state = {name: getattr(self, name).state_dict() for name in names}
        file = io.BytesIO()
        torch.save({**state, "step": self.step}, file)
        return file.getvalue()

    def run(self, until: int, *, leave_out: int | None = None) -> None:
        """Train; the update of step `leave_out` is skipped by the user."""
        while self.step < until:
            self.optimizer.zero_grad()
            self.scaler.scale(loss_of(self.ddp, self.step)).backward()
            if self.step != leave_out:
                self.scaler.step(self.optimizer)
                self.scaler.update()
                self.schedule.step()
            self.step += 1

    def end(self) -> dict[str, Any]:
        self.attached.detach()
        return {
            "bits": bits(self.ddp), "strikes": vars(self.attached.strikes), "steps": self.attached.steps,
            "syncs": self.attached.syncs, "scaler": self.scaler.state_dict(),
        }  # fmt: skip


CASES: list[dict[str, Any]] = [
    {"name": "paft_sync", "period": 3, "overlap": True, "state": "all"},
    {"name": "paft_dyn", "rule": "code", "period": 3, "period_min": 3, "period_max": 6, "overlap": True},
    {"name": "paft_dyn", "rule": "consensus", "period": 2, "period_max": 5},
]


def resumed(leave_out: int | None) -> list[dict[str, Any]]:
    """Interrupted after every step, the third with a mean under way, against never interrupted."""
    found = []
    for case in CASES:
        for scaled in (False, True):
            whole = Loop(case, scaled=scaled)
            whole.run(STEPS, leave_out=leave_out)
            part = Loop(case, scaled=scaled)
            pending = 0
            for step in range(STEPS):
                part.run(step + 1, leave_out=leave_out)
                pending += part.attached._hooks.pipeline.states[0]["pending"] is not None
                part = Loop(case, scaled=scaled, saved=part.save())
            found.append({"whole": whole.end(), "part": part.end(), "pending": pending, "overlap": case.get("overlap")})
    return found


@pytest.mark.filterwarnings("ignore:Detected call of")
@pytest.mark.parametrize(("world_size", "leave_out"), [pytest.param(2, None, marks=pytest.mark.slow), (3, 5)])
def test_a_loop_that_saves_the_attachments_state_continues_bit_for_bit(world_size: int, leave_out: int | None) -> None:
    for rank in together(resumed, world_size, leave_out):
        for found in rank:
            assert found["whole"] == found["part"] and found["whole"]["syncs"] >= 2
            assert (found["pending"] > 0) == bool(found["overlap"])


def of_the_first_rank() -> tuple[list[bytes], list[bytes]]:
    """Without faults every rank may load what rank 0 saved, as most scripts do."""
    sync = [paftbench.Mitigation("paft_sync", period=2, overlap=True)]

    def loop(saved: Any, steps: range) -> tuple[Any, Any]:
        ddp = build()
        optimizer = torch.optim.SGD([p for p in ddp.parameters() if p.requires_grad], lr=0.1, momentum=0.9)
        attached = paftbench.attach(ddp, optimizer, mitigations=sync)
        if saved is not None:
            for each, state in zip((ddp, optimizer, attached), saved, strict=True):
                each.load_state_dict(state)
        for step in steps:
            optimizer.zero_grad()
            loss_of(ddp, step).backward()
            optimizer.step()
        box = [[each.state_dict() for each in (ddp, optimizer, attached)]]
        dist.broadcast_object_list(box)
        return bits(ddp), box[0]

    whole, _ = loop(None, range(5))
    _, saved = loop(None, range(2))
    assert saved[2]["pipeline"]["mitigations"][0]["pending"] is not None
    again, _ = loop(saved, range(2, 5))
    return whole, again


def test_without_faults_the_state_of_rank_0_serves_every_rank() -> None:
    for whole, again in together(of_the_first_rank, 2):
        assert whole == again


def wrong_states() -> list[str]:
    ddp = build()
    optimizer = torch.optim.SGD([p for p in ddp.parameters() if p.requires_grad], lr=0.1)
    attached = paftbench.attach(ddp, optimizer, faults=noise(), accumulation=2)
    saved = attached.state_dict()
    loss_of(ddp, 0).backward()
    found = [refusal(attached.state_dict)]
    attached.detach()
    other = paftbench.attach(ddp, optimizer, faults=noise(name="other"))
    found.append(refusal(lambda: other.load_state_dict(saved)))
    return found


def test_a_state_in_the_middle_of_a_step_or_of_something_else_is_refused() -> None:
    assert together(wrong_states, 1) == [
        [
            "RuntimeError: state_dict() within a step: after 1 of its 2 backward passes",
            "Refused: the state is of ['fault gaussian_noise'], but attached are ['fault other']",
        ]
    ]


def continued() -> dict[str, Any]:
    ddp = build()
    optimizer = torch.optim.SGD([p for p in ddp.parameters() if p.requires_grad], lr=0.1)
    with paftbench.attach(ddp, optimizer) as attached:
        train(ddp, optimizer, range(3))
    saved = attached.state_dict()

    def on(loop: Any, **options: Any) -> int:
        with paftbench.attach(ddp, optimizer, **options) as again:
            again.load_state_dict(saved)
            loop()
        return again.steps

    return {
        "nothing": on(lambda: None),
        "accumulated": on(lambda: train(ddp, optimizer, range(2), rounds=2, sync="all"), accumulation=2),
        "past the hook": refusal(lambda: on(lambda: train(ddp.module, optimizer, range(2)))),
    }


def test_a_continued_loop_may_accumulate_otherwise_or_be_over_and_is_checked_anew() -> None:
    for found in together(continued, 2):
        assert found["nothing"] == 3 and found["accumulated"] == 5
        assert found["past the hook"].startswith("RuntimeError: the hook was never called")


SCRIPT = """
import json, sys
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
ddp = DistributedDataParallel(torch.nn.Linear(3, 2))
optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
def step():
    optimizer.zero_grad()
    ddp(torch.ones(1, 3)).sum().backward()
    optimizer.step()
step()
before = {name.partition(".")[0] for name in sys.modules}
import paftbench
with paftbench.attach(ddp, optimizer, mitigations=[paftbench.Mitigation("paft_dyn", period=2)]):
    step(), step()
after = {name.partition(".")[0] for name in sys.modules} - before
print(json.dumps([sorted(after), sorted(name for name in sys.modules if name.startswith("paftbench."))]))
dist.destroy_process_group()
"""
# What training without faults has no use for.
UNWANTED = ("analysis", "cli", "engines", "experiment", "workloads", "config", "trial", "store", "records", "virtual")


def test_attaching_a_mitigation_imports_nothing_of_experiments_or_plots() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    others, ours = json.loads(done.stdout.splitlines()[-1])  # older gloo greets on stdout
    pydantic = {"annotated_types", "pydantic", "pydantic_core", "typing_inspection", "zoneinfo", "_zoneinfo"}
    assert set(others) <= {"paftbench", *pydantic}
    assert not [name for name in ours if name.split(".")[1] in UNWANTED]
