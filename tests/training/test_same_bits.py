"""The spine: a trial with `exact` gives the same bits in every placement, and those of plain torch."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from support import placements, resumed
from support.placements import Bits
from support.processes import together

WORLDS = (2, 3, 4)
MODELS = ("resnet", "gpt2")
UNUSED = ("idle", "idle:momentum_buffer", None)


@pytest.fixture(scope="module", params=WORLDS)
def world_size(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture(scope="module")
def in_processes(world_size: int) -> list[dict[str, Any]]:
    """What each rank of real DDP ended with."""
    return together(placements.torchrun_rank, world_size, world_size)


@pytest.fixture(scope="module")
def in_one_process(world_size: int) -> dict[str, Bits]:
    return {name: placements.virtual(planned) for name, planned in placements.trials(world_size).items()}


def log_of(parts: list[Bits]) -> list[dict[str, Any]]:
    """The rows of all processes in one order."""
    names = [fault.name for fault in placements.FAULTS]
    rows = [row for part in parts for row in part.rows]
    return sorted(rows, key=lambda row: (row["step"], names.index(row["fault"]), row["rank"]))


def assert_same(parts: list[Bits], whole: Bits) -> None:
    """Every weight, buffer, loss and logged strike."""
    assert [rank for part in parts for rank in part.ranks] == list(whole.ranks)
    for kind in ("parameters", "buffers"):
        rows = [row for part in parts for row in getattr(part, kind)]
        assert len(rows) == len(getattr(whole, kind))
        for rank, (ours, theirs) in enumerate(zip(rows, getattr(whole, kind), strict=True)):
            assert torch.equal(ours, theirs), f"{kind} of rank {rank}: {int((ours != theirs).sum())} words differ"
    losses = [[loss for step in steps for loss in step] for steps in zip(*(p.losses for p in parts), strict=True)]
    assert losses == whole.losses
    assert log_of(parts) == log_of([whole])
    assert {part.syncs for part in parts} == {whole.syncs} and whole.syncs > 5
    assert {part.gradient_bytes for part in parts} == {whole.gradient_bytes}


@pytest.mark.parametrize("model", MODELS)
def test_ddp_in_processes_gives_the_bits_of_one_process(
    model: str, in_processes: list[dict[str, Any]], in_one_process: dict[str, Bits]
) -> None:
    assert_same([rank[model] for rank in in_processes], in_one_process[model])
    assert all(rank[model].buckets >= 3 for rank in in_processes)


@pytest.mark.parametrize("model", MODELS)
def test_one_process_gives_the_bits_of_plain_torch(
    model: str, world_size: int, in_one_process: dict[str, Bits]
) -> None:
    whole = in_one_process[model]
    landed = [row for row in whole.rows if row["landed"] and row["index"] is not None]
    counts = Counter(row["site"] for row in landed)
    assert set(counts) == {"contribution", "result", "parameter", "optimizer_state"} and min(counts.values()) > 10
    parameters, buffers = placements.by_reference(placements.trials(world_size)[model], landed)
    for rank in range(world_size):
        assert torch.equal(whole.parameters[rank], parameters[rank]), rank
        assert torch.equal(whole.buffers[rank], buffers[rank]), rank
    assert not torch.equal(parameters[0], parameters[1]), "replicas that agree prove little"


def test_strikes_on_a_parameter_that_no_step_uses_land_in_its_memory_only(in_one_process: dict[str, Bits]) -> None:
    lost = [row for row in in_one_process["gpt2"].rows if not row["landed"]]
    assert {row["parameter"] for row in lost} == set(UNUSED)
    assert all(row["landed"] for row in in_one_process["gpt2"].rows if row["parameter"] not in UNUSED)
    assert any(row["parameter"] == "idle" for row in in_one_process["gpt2"].rows if row["site"] == "parameter")
    assert all(row["landed"] for row in in_one_process["gpt2"].rows if row["site"] == "parameter")


def test_two_processes_of_two_ranks_give_the_bits_of_one_process() -> None:
    parts = together(placements.hybrid_rank, 2, 4)
    for name, planned in placements.trials(4).items():
        assert_same([part[name] for part in parts], placements.virtual(planned))


def test_degree_zero_is_native_ddp_bit_for_bit_through_the_bucket_rebuild(in_processes: list[dict[str, Any]]) -> None:
    for rank in in_processes:
        ours, native, losses = rank["degree 0"]
        assert torch.equal(ours.parameters[0], native)
        assert [loss for (loss,) in ours.losses] == losses
        assert ours.rows == [] and ours.buckets >= 3


def assert_continues_bitwise(whole: dict[str, Any], continued: dict[str, Any]) -> None:
    assert continued["result"] == whole["result"]
    assert continued["steps"] == whole["steps"]
    assert continued["injections"] == whole["injections"]
    assert whole["result"]["mitigation"]["syncs"] >= 3 and whole["result"]["strikes"]["landed"] > 1000
    assert whole["result"]["gradient_bytes"] > 0


@pytest.mark.parametrize("model", MODELS)
def test_a_resumed_trial_gives_the_bits_and_records_of_an_uninterrupted_one(tmp_path: Path, model: str) -> None:
    item = resumed.planned(model, 3, procs=None)
    for name in ("whole", "parts"):
        (tmp_path / name).mkdir()
    assert not resumed.run(item, tmp_path / "whole")
    assert not resumed.run(item, tmp_path / "parts", until=resumed.LAST)
    assert not (tmp_path / "parts" / "result.json").exists()
    assert resumed.run(item, tmp_path / "parts")
    assert_continues_bitwise(resumed.written(tmp_path / "whole"), resumed.written(tmp_path / "parts"))


@pytest.mark.parametrize(("model", "world_size"), [("gpt2", 2), ("resnet", 4)])
def test_a_resumed_trial_of_processes_does_too_and_equals_one_process(
    tmp_path: Path, model: str, world_size: int
) -> None:
    for name in ("whole", "parts", "virtual"):
        (tmp_path / name).mkdir()

    def in_processes(name: str, until: int | None = None) -> list[bool]:
        return together(resumed.run_rank, 2, model, world_size, 2, tmp_path / name, until)

    assert in_processes("whole") == [False, False]
    assert in_processes("parts", resumed.LAST) == [False, False]
    assert in_processes("parts") == [True, True]
    whole = resumed.written(tmp_path / "whole")
    assert_continues_bitwise(whole, resumed.written(tmp_path / "parts"))
    resumed.run(resumed.planned(model, world_size, procs=None), tmp_path / "virtual")
    alone = resumed.written(tmp_path / "virtual")
    assert whole["injections"] == alone["injections"]
    for key in ("params_sha256", "history", "strikes", "mitigation"):
        assert whole["result"][key] == alone["result"][key], key
