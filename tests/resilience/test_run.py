"""A loop of a user's own goes on from any kill as if there had been none, and past what is not normal by rungs."""

import json
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from support.processes import attempt, together
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

from paftbench import Fault, attach
from paftbench.mitigations.paft_sync import PaftSync
from paftbench.resilience import Checkpoints, Recovery, Run, StreamSampler
from paftbench.resilience.run import GaveUp

SIZE, BATCH, STEPS = 96, 4, 26


class Numbered(Dataset[tuple[Tensor, Tensor, int]]):
    """Samples that say which they are."""

    def __len__(self) -> int:
        return SIZE

    def __getitem__(self, number: int) -> tuple[Tensor, Tensor, int]:
        generator = torch.Generator().manual_seed(number)
        x = torch.randn(8, generator=generator)
        return x, x.sum()[None], number


def bits_of(model: nn.Module) -> list[list[float]]:
    return [parameter.detach().flatten().tolist() for parameter in model.parameters()]


def a_training(
    directory: Path, *, faults: bool = False, steps: int = STEPS, stop: Callable[[int], None] = lambda step: None
) -> tuple[Any, list[int], list[str]]:
    """Weights, the samples of this rank, and what was done; dropout, momentum and a schedule beside them."""
    torch.manual_seed(5)
    rank, world = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
    model: nn.Module = nn.Sequential(nn.Linear(8, 16), nn.Dropout(0.2), nn.ReLU(), nn.Linear(16, 1))
    if dist.is_initialized():
        model = DistributedDataParallel(model)
    torch.manual_seed(100 + rank)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
    sampler = StreamSampler(SIZE, rank=rank, world_size=world, seed=3)
    loader = DataLoader(Numbered(), batch_size=BATCH, sampler=sampler)
    attached = None
    if faults:
        assert isinstance(model, DistributedDataParallel)
        noise = Fault("gaussian_noise", degree=0.01)
        attached = attach(model, optimizer, faults=[noise], mitigations=[PaftSync(period=4)])
    run = Run(
        directory, model=model, optimizer=optimizer, scheduler=scheduler, sampler=sampler, attached=attached,
        checkpoints=Checkpoints(every=4, stable_after=4),
    )  # fmt: skip
    seen, done = [], []
    for step, (x, y, numbers) in run.steps(loader, until=steps):
        stop(step)
        seen += numbers.tolist()
        loss = (model(x) - y).square().mean()
        loss.backward()
        done.append(run.step(loss))
    return bits_of(model), seen, done


def killed_at(directory: Path, faults: bool, step: int, delay: float) -> None:
    def stop(reached: int) -> None:
        if reached == step and dist.get_rank() == 1:
            time.sleep(delay)
            os.kill(os.getpid(), signal.SIGKILL)

    a_training(directory, faults=faults, stop=stop)


def events(directory: Path, name: str | None = None) -> list[dict[str, Any]]:
    rows = [json.loads(line) for line in (directory / "events.jsonl").read_text().splitlines()]
    return [row for row in rows if name in (None, row["event"])]


def weights(directory: Path, faults: bool) -> Any:
    return a_training(directory, faults=faults)[0]


@pytest.mark.parametrize(
    "faults",
    [pytest.param(False, id="no faults", marks=pytest.mark.slow), pytest.param(True, id="noise and PAFT-Sync")],
)
def test_a_run_that_was_killed_twice_ends_with_the_bits_of_one_that_was_not(tmp_path: Path, faults: bool) -> None:
    whole = together(weights, 2, tmp_path / "whole", faults)
    assert (whole[0] == whole[1]) is not faults, "under noise replicas differ"
    kills = random.Random(faults)
    for step in sorted(kills.sample(range(6, STEPS), 2)):
        outcomes = attempt(killed_at, 2, tmp_path / "killed", faults, step, kills.uniform(0, 0.05))
        assert outcomes[1][0] == "died"
    assert together(weights, 2, tmp_path / "killed", faults) == whole
    assert len(events(tmp_path / "killed", "loaded")) >= 2


def samples(directory: Path, steps: int) -> list[int]:
    return a_training(directory, steps=steps)[1]


def test_after_changes_of_the_number_of_ranks_no_sample_is_skipped_or_repeated(tmp_path: Path) -> None:
    """Two ranks, three, two; each part ends at a checkpoint."""
    seen: Counter[int] = Counter()
    for ranks, steps in ((2, 4), (3, 12), (2, 16)):
        for own in together(samples, ranks, tmp_path, steps):
            seen.update(own)
    used = 2 * BATCH * 4 + 3 * BATCH * 8 + 2 * BATCH * 4
    assert seen.total() == used
    stream = iter(StreamSampler(SIZE, rank=0, world_size=1, seed=3))
    assert seen == Counter(next(stream) for _ in range(used))


def a_loop(directory: Path, losses: Callable[[int, int], float], **options: Any) -> tuple[Run, list[str]]:
    """A loop whose gradient is what a function of (call, step) says; what was done at each call."""
    model = nn.Linear(1, 1, bias=False)
    nn.init.ones_(model.weight)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    run = Run(directory, model=model, optimizer=optimizer, **options)
    done: list[str] = []
    for step, _ in run.steps([torch.ones(1, 1)], until=60):
        loss = model(torch.ones(1, 1)).mean() * losses(len(done), step)
        loss.backward()
        done.append(run.step(loss))
    return run, done


@pytest.mark.parametrize("odd", [float("nan"), float("inf"), 1e6])
def test_one_odd_step_is_left_out_and_spoils_no_statistic(tmp_path: Path, odd: float) -> None:
    run, done = a_loop(tmp_path, lambda call, step: odd if step == 30 else 1 + step % 3 / 10)
    assert [step for step, action in enumerate(done) if action != "update"] == [30] and done[30] == "skip"
    (row,) = events(tmp_path, "anomaly")
    assert row["step"] == 30 and row["kind"] == ("exploding" if odd == 1e6 else "nonfinite")
    state = run.monitor.state_dict()
    assert all(abs(value) < 2 for value in [*state["losses"], *state["norms"]])


def test_a_gradient_that_vanishes_is_an_anomaly(tmp_path: Path) -> None:
    a_loop(tmp_path, lambda call, step: 1e-9 if step == 40 else 1.0)
    assert [row["kind"] for row in events(tmp_path, "anomaly")] == ["vanishing"]


def test_what_does_not_pass_climbs_every_rung_in_order_and_then_gives_up(tmp_path: Path) -> None:
    done: list[str] = []

    def losses(call: int, step: int) -> float:
        return 1.0 if call < 30 else float("nan")

    recovery = Recovery(skips=2, cuts=1, rollbacks=2)
    with pytest.raises(GaveUp, match=r"nonfinite on rank 0: nan, .* every rung of the recovery was tried"):
        a_loop(tmp_path, losses, recovery=recovery, checkpoints=Checkpoints(every=10, stable_after=5))
    done = [row["action"] for row in events(tmp_path, "anomaly")]
    assert done == ["skip", "skip", "cool", "roll back", "roll back", "give up"]
    assert [(row["rolled_back_from"], row["step"]) for row in events(tmp_path, "recovery")] == [(33, 20), (20, 20)]
    assert events(tmp_path, "anomaly")[-1]["multiplier"] == 0.5


def test_a_lowered_rate_survives_loads_and_schedulers_and_comes_back_after_calm_steps(tmp_path: Path) -> None:
    model = nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=1.0)
    recovery = Recovery(skips=0, cuts=3, calm=5)

    def a_run(until: int, odd: int) -> list[float]:
        run = Run(
            tmp_path, model=model, optimizer=optimizer, scheduler=scheduler, recovery=recovery,
            checkpoints=Checkpoints(every=1, asynchronous=False),
        )  # fmt: skip
        used = []
        for step, _ in run.steps([0], until=until):
            loss = model(torch.ones(1, 1)).sum() * (float("nan") if step == odd else 0.01)
            loss.backward()
            run.step(loss)
            used.append(run.rungs.multiplier)
            assert optimizer.param_groups[0]["lr"] == 1.0, "the schedule's own rate is let be"
        return used

    assert a_run(4, odd=2) == [1.0, 1.0, 0.5, 0.5]
    assert a_run(9, odd=-1) == [0.5, 0.5, 0.5, 1.0, 1.0]


def test_a_checkpoint_of_another_model_is_refused_and_nothing_is_changed(tmp_path: Path) -> None:
    def a_run(model: nn.Module, optimizer: torch.optim.Optimizer, **parts: Any) -> Run:
        return Run(tmp_path, model=model, optimizer=optimizer, checkpoints=Checkpoints(every=1), **parts)

    first = nn.Linear(2, 1)
    run = a_run(first, torch.optim.SGD(first.parameters(), lr=0.1))
    for _, _ in run.steps([0], until=2):
        loss = first(torch.ones(1, 2)).sum()
        loss.backward()
        run.step(loss)
    other = nn.Linear(3, 1)
    before = bits_of(other)
    with pytest.raises(
        ValueError, match=r"of another training: model\.weight is float32 \[1, 2\] there and float32 \[1, 3\]"
    ):
        next(a_run(other, torch.optim.SGD(other.parameters(), lr=0.1)).steps([0], until=3))
    assert bits_of(other) == before
    same = nn.Linear(2, 1)
    grouped = torch.optim.SGD([{"params": [same.weight]}, {"params": [same.bias]}], lr=0.1)
    with pytest.raises(ValueError, match="of another optimizer"):
        next(a_run(same, grouped).steps([0], until=3))
    optimizer = torch.optim.SGD(same.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    with pytest.raises(ValueError, match=r"it has the parts \[\] and the run \['scheduler'\]"):
        next(a_run(same, optimizer, scheduler=scheduler).steps([0], until=3))


def test_another_stream_of_samples_is_refused() -> None:
    sampler = StreamSampler(10, rank=0, world_size=1, seed=1)
    for state in ({"consumed": 3, "seed": 2, "size": 10}, {"consumed": 3, "seed": 1, "size": 11}):
        with pytest.raises(ValueError, match="another stream of samples"):
            sampler.load_state_dict(state)


def test_an_epoch_of_the_stream_is_every_sample_once_however_many_ranks_share_it() -> None:
    for world in (1, 2, 3, 7):
        streams = [iter(StreamSampler(21, rank=rank, world_size=world, seed=0)) for rank in range(world)]
        dealt = [next(stream) for _ in range(42 // world) for stream in streams]
        assert sorted(dealt[:21]) == sorted(dealt[21:42]) == list(range(21))
        assert dealt[:21] != dealt[21:42]


def test_a_loader_without_a_batch_is_refused(tmp_path: Path) -> None:
    model = nn.Linear(1, 1)
    run = Run(tmp_path, model=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1))
    with pytest.raises(ValueError, match="loader has no batch"):
        next(run.steps([], until=1))


def test_the_error_that_ends_a_run_stands_in_its_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = nn.Linear(1, 1)
    run = Run(tmp_path, model=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1))
    with pytest.raises(KeyError), run:
        raise KeyError("mine")
    (row,) = events(tmp_path, "failed")
    assert row["error"] == "KeyError" and row["message"] == "'mine'" and row["rank"] == 0
    assert "KeyError" in capsys.readouterr().err


def skips_while_attached(directory: Path) -> tuple[list[str], int, int]:
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    attached = attach(model, optimizer, faults=[Fault("gaussian_noise", degree=1e-3)], mitigations=[PaftSync(period=2)])
    run = Run(directory, model=model, optimizer=optimizer, attached=attached, checkpoints=Checkpoints(every=5))
    done: list[str] = []
    for step, _ in run.steps([0], until=30):
        loss = model(torch.ones(2, 4)).square().mean() * (float("nan") if step == 20 else 1.0)
        loss.backward()
        done.append(run.step(loss))
    return done, attached.steps, attached.syncs


def test_a_step_may_be_left_out_while_faults_are_attached(tmp_path: Path) -> None:
    for done, steps, syncs in together(skips_while_attached, 2, tmp_path):
        assert [step for step, action in enumerate(done) if action == "skip"] == [20]
        assert (steps, syncs) == (29, 14)
