"""Ranks as threads: real DDP, the same numbers each time, no wait without end, and nothing left behind."""

import random
import signal
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader

import paftbench
from paftbench.testing import FaultyRanks, RankError, RanksStuck

FLIPS = paftbench.Fault("bit_flip", degree=0.02, bits="mantissa")


class Net(nn.Module):
    """Dropout and BatchNorm: random draws and buffers."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Dropout(0.3), nn.ReLU(), nn.Linear(8, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.layers(x)
        return y


def build() -> tuple[nn.Module, torch.optim.Optimizer]:
    model = Net()
    return model, torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)


def step(ddp: Any, optimizer: torch.optim.Optimizer) -> float:
    x = torch.randn(8, 6)
    loss = (ddp(x) - x.sum(1, keepdim=True)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


def train(ddp: Any, optimizer: torch.optim.Optimizer, steps: int = 10) -> list[float]:
    return [step(ddp, optimizer) for _ in range(steps)]


@pytest.fixture(autouse=True)
def nothing_left_behind() -> Iterator[None]:
    """No thread, group or hook outlives a run, however it ends."""
    hook, world = sys.excepthook, dist.distributed_c10d._world
    yield
    assert not [thread for thread in threading.enumerate() if thread.name.startswith(("rank ", "side"))]
    assert sys.excepthook is hook and dist.distributed_c10d._world is world and not dist.is_initialized()


@pytest.mark.parametrize("world_size", [2, 3, 16])
def test_golden_replicas_agree_and_come_out_the_same_again(world_size: int) -> None:
    ranks = FaultyRanks(world_size)
    first, again = ranks.run(train, build), ranks.run(train, build)
    first.assert_replicas_agree()
    assert first.curves == again.curves and first.divergence == 0.0
    assert len({tuple(curve) for curve in first.curves}) == world_size  # each rank drew data of its own
    assert ranks.run(train, build, seed=1).curves != first.curves


def test_faulty_run_comes_out_the_same_again_and_differs_from_golden() -> None:
    ranks = FaultyRanks(3)
    golden = ranks.run(train, build)
    first, again = (ranks.run(train, build, faults=[FLIPS]) for _ in range(2))
    first.assert_struck(at_least=10)
    assert first.curves == again.curves and first.divergence == again.divergence > 0.0
    assert first.curves[0][0] == golden.curves[0][0] and first.curves != golden.curves
    assert ranks.run(train, build, faults=[FLIPS], fault_seed=5).curves != first.curves


def test_weights_start_equal_even_where_build_draws_others_on_each_rank() -> None:
    def building() -> tuple[nn.Module, torch.optim.Optimizer]:
        torch.manual_seed(dist.get_rank())
        return build()

    FaultyRanks(3).run(train, building).assert_replicas_agree()


def test_every_global_stream_belongs_to_its_rank() -> None:
    def drawing(ddp: Any, optimizer: Any) -> list[float]:
        seeded = torch.rand(1).item(), np.random.rand(), random.random()
        torch.manual_seed(dist.get_rank()), np.random.seed(dist.get_rank()), random.seed(dist.get_rank())
        train(ddp, optimizer, 2)  # the others run, seed and draw meanwhile
        return [*seeded, torch.rand(1).item(), np.random.rand(), random.random()]

    first, again = (FaultyRanks(3).run(drawing, build).curves for _ in range(2))
    assert first == again
    assert len({value for curve in first for value in curve}) == 18


@pytest.mark.parametrize("raises", [False, True])
def test_the_users_own_streams_go_on_as_if_nothing_had_run(raises: bool) -> None:
    def drawn() -> tuple[float, ...]:
        return torch.rand(1).item(), np.random.rand(), np.random.randn(), random.random(), random.gauss(0, 1)

    def seed() -> None:
        torch.manual_seed(1), np.random.seed(1), random.seed(1)
        drawn()  # leaves half a pair of normal numbers behind

    seed()
    expected = drawn()
    seed()
    if raises:
        with pytest.raises(RankError):
            FaultyRanks(2).run(lambda ddp, optimizer: [torch.rand(1).item() / 0], build)
    else:
        FaultyRanks(2).run(train, build)
    assert drawn() == expected


def test_default_dtype_that_a_rank_sets_does_not_outlive_the_run() -> None:
    def build_in_double() -> tuple[nn.Module, torch.optim.Optimizer]:
        torch.set_default_dtype(torch.float64)
        return build()

    run = FaultyRanks(2).run(train, build_in_double)
    assert {value.dtype for value in run.outcomes[0].parameters.values()} == {torch.float64}
    assert torch.get_default_dtype() == torch.float32


def test_shuffling_loader_without_a_generator_is_the_same_each_time() -> None:
    def loading(ddp: Any, optimizer: Any) -> list[float]:
        train(ddp, optimizer, 1)
        return [float(batch.sum()) for batch in DataLoader(torch.arange(40.0), batch_size=8, shuffle=True)]

    first, again = (FaultyRanks(2).run(loading, build).curves for _ in range(2))
    assert first == again and first[0] != first[1]


def test_mitigations_act() -> None:
    ranks = FaultyRanks(4)
    for overlap in (False, True):
        sync = paftbench.Mitigation("paft_sync", period=5, overlap=overlap)
        run = ranks.run(train, build, faults=[FLIPS], mitigations=[sync])
        assert run.syncs == 2 and run.extra_bytes > 0 and run.steps == 10
        assert run.outcomes[0].synced_last
    uneven = ranks.run(train, build, mitigations=[paftbench.Mitigation("paft_sync", period=4)])
    assert uneven.syncs == 2 and not uneven.outcomes[0].synced_last
    ranks.run(train, build, faults=[FLIPS], mitigations=[paftbench.Mitigation("regather")]).assert_replicas_agree()


def test_options_reach_ddp_and_attach() -> None:
    def accumulating(ddp: Any, optimizer: torch.optim.Optimizer) -> Iterator[float]:
        for _ in range(4):
            optimizer.zero_grad()
            for _ in range(2):
                loss = ddp(torch.randn(8, 6)).square().mean()
                loss.backward()
            optimizer.step()
            yield loss.item()

    run = FaultyRanks(2).run(
        accumulating,
        build,
        accumulation=2,
        exact=True,
        ddp={"broadcast_buffers": False, "find_unused_parameters": True, "bucket_cap_mb": 0.001},
    )
    assert run.steps == 4 and len(run.curve) == 4


@pytest.mark.slow
def test_compiled_model_gives_the_same_curve() -> None:
    def compiling(ddp: Any, optimizer: torch.optim.Optimizer) -> list[float]:
        return train(torch.compile(ddp, backend="aot_eager"), optimizer)

    ranks = FaultyRanks(3)
    compiled, plain = (ranks.run(loop, build, faults=[FLIPS]) for loop in (compiling, train))
    assert compiled.curve == pytest.approx(plain.curve) and compiled.strikes == plain.strikes


def test_what_else_build_returns_goes_to_train() -> None:
    def building() -> tuple[Any, ...]:
        model, optimizer = build()
        return model, optimizer, torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)

    def scheduled(ddp: Any, optimizer: torch.optim.Optimizer, scheduler: Any) -> Iterator[float]:
        for _ in range(3):
            step(ddp, optimizer)
            scheduler.step()
            yield scheduler.get_last_lr()[0]

    assert FaultyRanks(2).run(scheduled, building).curve == [0.025, 0.0125, 0.00625]


def test_scaler_among_what_build_returns_is_attached() -> None:
    def building() -> tuple[Any, ...]:
        return *build(), torch.amp.GradScaler("cpu", init_scale=2.0**10)

    def scaled(ddp: Any, optimizer: torch.optim.Optimizer, scaler: torch.amp.GradScaler) -> Iterator[float]:
        for number in range(8):
            x = torch.randn(8, 6)
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = ddp(x).float().square().mean()
            if number == 3 and dist.get_rank() == 1:
                loss = loss * torch.inf  # on one rank: all have to skip the step
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            yield scaler.get_scale()

    faults = [paftbench.Fault("bit_flip", degree=0.02, bits=0)]
    run = FaultyRanks(3).run(
        scaled, building, faults=faults, mitigations=[paftbench.Mitigation("paft_sync", period=4)], exact=True
    )
    assert run.steps == 8 and run.curves == [[2.0**10] * 3 + [2.0**9] * 5] * 3
    run.assert_replicas_agree()


@pytest.mark.parametrize("site", ["contribution", "result", "parameter", "optimizer_state"])
def test_every_site_is_struck(site: str) -> None:
    fault = paftbench.Fault("bit_flip", degree=0.01, bits="mantissa", site=site)
    run = FaultyRanks(3).run(train, build, faults=[fault], exact=True)
    run.assert_struck(at_least=3)
    assert (run.divergence == 0.0) is (site == "contribution")


def test_groups_of_a_few_ranks_work() -> None:
    def grouped(ddp: Any, optimizer: Any) -> list[float]:
        halves = [dist.new_group([0, 1]), dist.new_group([2, 3])]
        train(ddp, optimizer, 2)
        mine = torch.tensor([float(dist.get_rank())])
        dist.all_reduce(mine, group=halves[dist.get_rank() // 2])
        return [mine.item()]

    assert FaultyRanks(4).run(grouped, build).curves == [[1.0], [1.0], [5.0], [5.0]]


def test_the_users_own_process_group_is_as_it_was() -> None:
    hook = sys.excepthook
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        FaultyRanks(3).run(train, build).assert_replicas_agree()
        with pytest.raises(RankError):
            FaultyRanks(3).run(lambda ddp, optimizer: None, build)
        assert dist.get_world_size() == 1 and dist.get_backend() == "gloo"
        dist.all_reduce(torch.ones(3))
        dist.new_group([0])
    finally:
        dist.destroy_process_group()
        sys.excepthook = hook


def test_rank_that_raises_ends_the_others_and_is_named() -> None:
    def failing(ddp: Any, optimizer: Any) -> list[float]:
        train(ddp, optimizer, 3)
        if dist.get_rank() == 2:
            raise KeyError("lost")
        return train(ddp, optimizer, 3)

    began = time.monotonic()
    with pytest.raises(
        RankError, match="rank 2 of 4 failed in train, after 3 completed steps: KeyError: 'lost'"
    ) as caught:
        FaultyRanks(4).run(failing, build)
    assert isinstance(caught.value.__cause__, KeyError) and caught.value.rank == 2
    assert time.monotonic() - began < 5.0


def test_run_after_one_that_failed_meets_none_of_its_threads() -> None:
    def failing(ddp: Any, optimizer: torch.optim.Optimizer) -> list[float]:
        curve = train(ddp, optimizer, 2)
        if dist.get_rank() == 1:  # the others' means are under way
            raise KeyError("lost")
        return curve + train(ddp, optimizer, 2)

    overlapped = paftbench.Mitigation("paft_sync", period=1, overlap=True)
    for _ in range(3):
        with pytest.raises(RankError, match="rank 1 of 3 failed"):
            FaultyRanks(3).run(failing, build, mitigations=[overlapped])
        FaultyRanks(3).run(train, build, mitigations=[overlapped]).assert_replicas_agree()


def test_build_is_blamed_for_what_build_does() -> None:
    shared = build()
    model, optimizer = build()
    for building, reason in (
        (lambda: 1 / 0, "failed in build: ZeroDivisionError"),
        (lambda: None, r"build must return \(model, optimizer\), got None"),
        (lambda: nn.Linear(1, 1), r"build must return \(model, optimizer\), got a Linear"),
        (lambda: (optimizer, model), "but the first is a SGD"),
        (lambda: (Net(), Net()), "but the second is a Net"),
        (lambda: (nn.parallel.DistributedDataParallel(Net()), optimizer), "return it bare"),
        (lambda: shared, "build gave ranks 0 and 1 one parameter 'layers.0.weight'"),
        (lambda: (Net(), torch.optim.SGD(Net().parameters(), lr=1.0)), "the optimizer does not update parameter"),
    ):
        with pytest.raises(RankError, match=reason):
            FaultyRanks(2).run(train, building)


def test_hook_of_the_users_own_is_refused() -> None:
    def hooking(ddp: Any, optimizer: Any) -> list[float]:
        ddp.register_comm_hook(None, lambda state, bucket: None)
        return train(ddp, optimizer)

    with pytest.raises(RankError, match="register_comm_hook"):
        FaultyRanks(2).run(hooking, build)


def test_rank_that_ends_early_is_noticed_at_once() -> None:
    def uneven(ddp: Any, optimizer: Any) -> list[float]:
        return train(ddp, optimizer, 3 + dist.get_rank())

    began = time.monotonic()
    with pytest.raises(RanksStuck) as caught:
        FaultyRanks(3).run(uneven, build)
    assert time.monotonic() - began < 5.0
    assert "rank 0 waits at the end of training" in str(caught.value)
    assert "rank 2 waits at broadcast, at test_thread_ranks.py:" in str(caught.value)


def test_collectives_that_do_not_match_are_named() -> None:
    def mixed(ddp: Any, optimizer: Any) -> list[float]:
        if dist.get_rank() == 1:
            dist.broadcast(torch.ones(3), 0)
        else:
            dist.all_reduce(torch.ones(3))
        return [0.0]

    with pytest.raises(RankError, match="rank 1 has come to broadcast, but rank 0 to allreduce"):
        FaultyRanks(2).run(mixed, build)


def test_run_without_end_is_ended_at_the_limit() -> None:
    def endless(ddp: Any, optimizer: Any) -> list[float]:
        train(ddp, optimizer, 1)
        while dist.get_rank() == 1:
            time.sleep(0.01)
        return train(ddp, optimizer, 1)

    with pytest.raises(RanksStuck, match="took longer than limit_s=1") as caught:
        FaultyRanks(2, limit_s=1.0).run(endless, build)
    assert "rank 1 runs, at test_thread_ranks.py:" in str(caught.value)


def test_signal_in_the_test_ends_the_ranks() -> None:
    class Alarm(Exception):
        pass

    def ring(*_: object) -> None:
        raise Alarm

    def endless(ddp: Any, optimizer: Any) -> Iterator[float]:
        while True:
            yield step(ddp, optimizer)

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, 1.0)
    try:
        with pytest.raises(Alarm):
            FaultyRanks(2).run(endless, build)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
    FaultyRanks(2).run(train, build).assert_replicas_agree()


def test_run_inside_a_run_is_refused() -> None:
    with pytest.raises(RankError, match="a run cannot start inside another"):
        FaultyRanks(2).run(lambda ddp, optimizer: FaultyRanks(2).run(train, build).curve, build)


def test_ranks_hand_in_curves_of_one_length() -> None:
    def ragged(ddp: Any, optimizer: Any) -> list[float]:
        return train(ddp, optimizer, 3)[: 1 + dist.get_rank()]

    with pytest.raises(ValueError, match=r"as many points on every rank, got \[1, 2, 3\]"):
        FaultyRanks(3).run(ragged, build)


def test_sample_pairs_each_seed_with_its_golden_run() -> None:
    sample = FaultyRanks(2).sample(train, build, seeds=3, faults=[FLIPS], exact=True)
    assert [run.task.seed for run in sample.runs] == [golden.task.seed for golden in sample.goldens] == [0, 1, 2]
    assert all(not golden.task.faults and golden.task.exact for golden in sample.goldens)
    sample.assert_struck()
    for seeds in (2, [1, 2], [1, 1, 2, 2]):
        with pytest.raises(ValueError, match="at least 3 different ones"):
            FaultyRanks(2).sample(train, build, seeds=seeds)


@pytest.mark.parametrize(
    "options, reason",
    [
        ({"world_size": 1}, "world_size .* got 1"),
        ({"world_size": 2.0}, "world_size .* got 2.0"),
        ({"ranks_as": "thread"}, "ranks_as .* 'threads' or 'torchrun', got 'thread'"),
        ({"limit_s": 0}, "limit_s .* got 0"),
    ],
)
def test_options_that_mean_nothing_are_refused(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        FaultyRanks(**options)
    with pytest.raises(ValueError, match="build must be a function, got a Net"):
        FaultyRanks(2).run(train, Net())  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"seed must be a whole number, got 0.5"):
        FaultyRanks(2).run(train, build, seed=0.5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"faults must be a list of paftbench.Fault\(...\), got Fault"):
        FaultyRanks(2).run(train, build, faults=FLIPS)  # type: ignore[arg-type]
    with pytest.raises(
        ValueError, match=r"mitigations must be a list of paftbench.Mitigation\(...\), got \['paft_sync'\]"
    ):
        FaultyRanks(2).run(train, build, mitigations=["paft_sync"])  # type: ignore[list-item]
    with pytest.raises(ValueError, match="the name 'bit_flip' is given twice"):
        FaultyRanks(2).run(train, build, faults=[FLIPS, FLIPS])
