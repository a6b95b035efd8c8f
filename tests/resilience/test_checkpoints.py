"""A checkpoint is whole or not there, whoever is killed when; what was damaged since is passed over and kept."""

import os
import pickle
import random
import resource
import signal
import time
from collections import Counter, OrderedDict
from collections.abc import Callable
from math import nan
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from support.processes import attempt, together

from paftbench.ranks.axis import Ranks
from paftbench.resilience.checkpoints import Checkpoints, Saver, opened_in
from paftbench.resilience.fence import Fenced
from paftbench.resilience.manifest import MANIFEST, share_of
from paftbench.resilience.share import snapshot_of
from paftbench.resilience.shelf import Shelf, verified, whole
from paftbench.resilience.state_tree import difference, put_together, taken_apart
from paftbench.resilience.unfinished import STAGES, Stage, Unfinished
from paftbench.store.files import read_json, write_json

SIZE = 3000


def state_after(step: int, rank: int) -> dict[str, Any]:
    """Tells from any of its elements which step and rank it is of."""
    weights = torch.full((SIZE,), float(1000 * rank + step))
    return {"weights": weights, "step": step, "moments": [weights.double() * 2]}


def of_rank(state: dict[str, Any], step: int, rank: int) -> bool:
    same = state_after(step, rank)
    return state["step"] == step and torch.equal(state["weights"], same["weights"]) and len(state["moments"]) == 1


def ranks_here() -> Ranks:
    if not dist.is_initialized():
        return Ranks.virtual(2)
    group = dist.group.WORLD
    assert group is not None
    return Ranks.of_group(dist.get_world_size(), group)


def a_saver(folder: Path, at: Callable[[Stage], None] = lambda stage: None, **config: Any) -> Saver:
    return opened_in(folder, ranks_here(), Checkpoints(**{"asynchronous": False, **config}), at=at)


def save(saver: Saver, *steps: int) -> None:
    for step in steps:
        saver.save(step, state_after(step, saver.ranks.local[0]), {"rows": step})


def steps_in(folder: Path) -> list[int]:
    return [item.step for item in Shelf(folder=folder).newest_first()]


def test_every_kind_of_state_comes_back_as_it_was(tmp_path: Path) -> None:
    model = torch.nn.Linear(3, 4)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.randn(2, 3)).sum().backward()
    optimizer.step()
    state = {
        "model": model.state_dict(), "optimizer": optimizer.state_dict(), "python": random.getstate(),
        "numpy": np.random.get_state(), "torch": torch.get_rng_state(), "milestones": Counter({30: 1, 60: 2}),
        "complex": torch.randn(2, dtype=torch.complex64), "flags": torch.tensor([True, False]),
        "empty": torch.empty(0, 3), "scalar": torch.tensor(1.5), "half": torch.randn(3).bfloat16(),
        "dtype": torch.bfloat16, (1, "a"): b"xy", 0: None, "view": torch.arange(12.0).view(3, 4).t(),
        "array": np.arange(5), "number": np.float32(0.1), "ordered": OrderedDict(b=1, a=2), "large": 1 << 80,
        "infinite": -float("inf"), "imaginary": 1 + 2j, "nested": [(1, [2.5, {"deep": torch.ones(1)}])],
    }  # fmt: skip
    saver = a_saver(tmp_path)
    saver.save(7, state, {"rows": {"steps.jsonl": 3}})
    loaded = saver.load()
    assert loaded is not None and loaded.step == 7 and loaded.more == {"rows": {"steps.jsonl": 3}}
    found = loaded.state
    assert difference(state, found) is None and list(found) == list(state)
    assert found["python"] == state["python"] and type(found["milestones"]) is Counter
    assert found["milestones"] == state["milestones"] and type(found["ordered"]) is OrderedDict
    for name in ("complex", "flags", "empty", "scalar", "half", "view", "torch"):
        assert torch.equal(found[name], torch.as_tensor(state[name])), name
    plain = ("dtype", (1, "a"), 0, "large", "infinite", "imaginary", "number")
    assert {name: found[name] for name in plain} == {name: state[name] for name in plain}


def test_a_number_that_is_none_comes_back_as_none() -> None:
    tree, tensors = taken_apart({"loss": nan, "more": [np.float64(nan)]})
    found = put_together(tree, tensors)
    assert found["loss"] != found["loss"] and found["more"][0] != found["more"][0]


class Own:
    """Nothing that a checkpoint knows."""


@pytest.mark.parametrize(
    ("state", "says"),
    [
        ({"a": [1, {"b": Own()}]}, r"^state\.a\[1\]\.b cannot be in a checkpoint, .* got Own$"),
        ({"a": {1.5: 2}}, r"^state\.a cannot be in a checkpoint: a key is float"),
        ({"a": {"x"}}, "got set"),
        ({"a": torch.eye(2).to_sparse()}, r"^state\.a .* sparse"),
        ({"a": torch.empty(2, device="meta")}, r"^state\.a .* without memory"),
        ({"a": lambda: 1}, "got function"),
    ],
)
def test_what_no_checkpoint_can_hold_is_refused_by_its_place_before_anything_is_written(
    tmp_path: Path, state: Any, says: str
) -> None:
    saver = a_saver(tmp_path)
    with pytest.raises(ValueError, match=says):
        saver.save(1, state, {})
    assert steps_in(tmp_path) == [] and not list(tmp_path.glob(".*.tmp"))


@pytest.mark.parametrize(
    ("other", "says"),
    [
        ({"w": torch.zeros(3), "n": 1}, r"state\.w is float32 \[3\] there and float32 \[2\] here"),
        ({"w": torch.zeros(2).double(), "n": 1}, "float64"),
        ({"w": torch.zeros(2)}, "has 'n' only here"),
        ({"w": torch.zeros(2), "n": 1, "m": 2}, "has 'm' only there"),
        ({"w": 2.0, "n": 1}, "is float there"),
    ],
)
def test_a_checkpoint_of_another_model_is_told_apart_by_the_first_place_that_differs(other: Any, says: str) -> None:
    import re

    own = {"w": torch.zeros(2), "n": 5}
    assert re.search(says, difference(own, other) or "")
    assert difference(own, {"w": torch.ones(2), "n": 7}) is None


def test_the_newest_stay_and_the_stable_one_whatever_its_age(tmp_path: Path) -> None:
    saver = a_saver(tmp_path, keep=2)
    save(saver, 1, 2)
    saver.shelf.mark_stable(saver.shelf.newest_first()[1])
    save(saver, 3, 4, 5)
    assert steps_in(tmp_path) == [5, 4, 1]
    stable = saver.shelf.stable()
    assert stable is not None and stable.step == 1


def test_a_step_that_is_saved_again_stands_beside_the_first_and_is_the_newer(tmp_path: Path) -> None:
    saver = a_saver(tmp_path)
    save(saver, 5)
    saver.save(5, state_after(6, 0), {})
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_dir()) == ["5", "5.1"]
    loaded = saver.load()
    assert loaded is not None and loaded.state["step"] == 6


def test_nothing_goes_while_none_of_those_that_stay_is_whole(tmp_path: Path) -> None:
    saver = a_saver(tmp_path, keep=1)
    save(saver, 1)
    unfinished = Unfinished(folder=tmp_path, step=2, fence=saver.fence)
    unfinished.add(share_of(0), snapshot_of(state_after(2, 0)).pieces())
    path = unfinished.publish([share_of(0)], 2, {})
    (path / share_of(0)).write_bytes(b"")
    assert saver.shelf.prune(1, saver.fence) == [] and steps_in(tmp_path) == [2, 1]


def truncate(path: Path) -> None:
    share = path / share_of(0)
    share.write_bytes(share.read_bytes()[:-1])


def flip_a_bit(path: Path) -> None:
    share = path / share_of(0)
    content = bytearray(share.read_bytes())
    content[len(content) // 2] ^= 1
    share.write_bytes(bytes(content))


def pickled(path: Path) -> None:
    """With a manifest that vouches for it."""
    import hashlib

    content = pickle.dumps({"weights": 1})
    (path / share_of(0)).write_bytes(content)
    manifest = read_json(path / MANIFEST)
    manifest["shares"][share_of(0)] = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    write_json(path / MANIFEST, manifest)


def outside(path: Path) -> None:
    manifest = read_json(path / MANIFEST)
    manifest["shares"]["../../etc/passwd"] = manifest["shares"][share_of(0)]
    write_json(path / MANIFEST, manifest)


def a_link(path: Path) -> None:
    share = path / share_of(0)
    share.rename(path.parent / "moved")
    share.symlink_to(path.parent / "moved")


DAMAGE: dict[str, Callable[[Path], Any]] = {
    "truncated": truncate,
    "a bit flipped": flip_a_bit,
    "a share missing": lambda path: (path / share_of(0)).unlink(),
    "no manifest": lambda path: (path / MANIFEST).unlink(),
    "a torn manifest": lambda path: (path / MANIFEST).write_text('{"format": 1, "st'),
    "a manifest of later": lambda path: write_json(path / MANIFEST, {**read_json(path / MANIFEST), "format": 9}),
    "a pickle": pickled,
    "a path that leads out": outside,
    "a link that leads out": a_link,
    "an empty directory": lambda path: [child.unlink() for child in path.iterdir()],
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_checkpoint_is_set_aside_and_the_one_before_is_loaded(tmp_path: Path, damage: str) -> None:
    saver = a_saver(tmp_path)
    save(saver, 1, 2)
    DAMAGE[damage](tmp_path / "2")
    loaded = a_saver(tmp_path).load()
    assert loaded is not None and loaded.step == 1 and of_rank(loaded.state, 1, 0)
    assert (tmp_path / "2.bad").is_dir() and steps_in(tmp_path) == [1]


def test_without_a_whole_checkpoint_nothing_is_loaded(tmp_path: Path) -> None:
    assert a_saver(tmp_path).load() is None
    save(a_saver(tmp_path), 1)
    truncate(tmp_path / "1")
    assert a_saver(tmp_path).load() is None and (tmp_path / "1.bad").is_dir()


def test_an_older_generation_cannot_publish_nor_prune_nor_set_aside(tmp_path: Path) -> None:
    old = a_saver(tmp_path)
    save(old, 1)
    unfinished = Unfinished(folder=tmp_path, step=2, fence=old.fence)
    unfinished.add(share_of(0), snapshot_of(state_after(2, 0)).pieces())
    new = a_saver(tmp_path)
    assert not unfinished.path.exists(), "what it left unfinished goes"
    unfinished.add(share_of(0), snapshot_of(state_after(2, 0)).pieces())
    with pytest.raises(Fenced):
        unfinished.publish([share_of(0)], 2, {})
    with pytest.raises(Fenced):
        old.shelf.set_aside(old.shelf.newest_first()[0], old.fence)
    save(new, 3)
    with pytest.raises(Fenced):
        old.shelf.prune(1, old.fence)
    assert steps_in(tmp_path) == [3, 1]


def test_a_check_that_fails_keeps_the_last_good_one(tmp_path: Path) -> None:
    def lost() -> None:
        raise PermissionError("the claim is lost")

    save(a_saver(tmp_path), 1)
    saver = a_saver(tmp_path)
    held = opened_in(tmp_path, ranks_here(), Checkpoints(asynchronous=False))
    object.__setattr__(held.fence, "check", lost)
    with pytest.raises(OSError, match="the claim is lost"):
        save(held, 2)
    assert steps_in(tmp_path) == [1] and saver.shelf.folder == tmp_path


@pytest.mark.parametrize("value", [{"every": -1}, {"keep": 0}, {"stable_after": -1}, {"patience_s": 0.0}])
def test_a_setting_out_of_range_is_refused_by_name(value: dict[str, Any]) -> None:
    (name,) = value
    with pytest.raises(ValueError, match=rf"^checkpoints\.{name} \(.+\) must be >"):
        Checkpoints(**value)


def test_a_folder_that_cannot_be_written_is_refused_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match=r"^checkpoints cannot be saved in .*file/inside: Not a directory"):
        a_saver(tmp_path / "file" / "inside")


def saves_and_dies(folder: Path, stage: Stage, of: int) -> None:
    """Saves steps 1 and 2; of step 2, the process that hosts rank `of` is killed at a stage."""

    def strike(reached: Stage) -> None:
        if dist.get_rank() == of and reached == stage and saver.step == 2:
            os.kill(os.getpid(), signal.SIGKILL)

    class Struck(Saver):
        step = 0

    saver = a_saver(folder, strike, keep=1)
    saver.__class__ = Struck
    for saver.step in (1, 2):
        save(saver, saver.step)


def loads(folder: Path) -> int:
    saver = a_saver(folder)
    loaded = saver.load()
    assert loaded is not None and of_rank(loaded.state, loaded.step, saver.ranks.local[0])
    return loaded.step


@pytest.mark.parametrize("of", [0, 1])
@pytest.mark.parametrize("stage", STAGES)
def test_a_rank_killed_at_any_stage_of_a_save_leaves_a_whole_one_that_all_load(
    tmp_path: Path, stage: Stage, of: int
) -> None:
    outcomes = attempt(saves_and_dies, 2, tmp_path, stage, of)
    reached = of == 0 or stage in ("begun", "share half", "share written", "share marked")
    assert (outcomes[of][0] == "died") == reached
    assert all(whole(item.path) for item in Shelf(folder=tmp_path).newest_first())
    published = not reached or stage in ("published", "pruned")
    assert set(together(loads, 2, tmp_path)) == {2 if published else 1}
    assert not list(tmp_path.glob(".*.tmp")), "the next generation clears up"


def damaged_for_one(folder: Path) -> tuple[int, bool]:
    saver = a_saver(folder)
    save(saver, 1, 2)
    if dist.get_rank() == 1:
        share = folder / "2" / share_of(1)
        share.write_bytes(share.read_bytes()[:-1])
    saver.ranks.barrier()
    loaded = saver.load()
    assert loaded is not None
    return loaded.step, of_rank(loaded.state, 1, dist.get_rank())


def test_all_ranks_agree_on_one_where_one_ranks_share_is_damaged(tmp_path: Path) -> None:
    assert together(damaged_for_one, 2, tmp_path) == [(1, True), (1, True)]


def too_large(folder: Path) -> str:
    saver = a_saver(folder)
    save(saver, 1)
    if dist.get_rank() == 1:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (SIZE, resource.RLIM_INFINITY))
    try:
        save(saver, 2)
    except OSError as error:
        return str(error)
    return "saved"


def test_a_disk_that_takes_no_more_is_every_ranks_error_and_the_last_good_one_stays(tmp_path: Path) -> None:
    said = together(too_large, 2, tmp_path)
    assert all("the checkpoint is not saved" in error and "File too large" in error for error in said), said
    assert steps_in(tmp_path) == [1] and verified(tmp_path / "1").step == 1


def in_the_background(folder: Path) -> tuple[list[int], list[str | None]]:
    saver = a_saver(folder, asynchronous=True, keep=2)
    answers = []
    for step in range(1, 5):
        state = state_after(step, dist.get_rank())
        answers.append(saver.save(step, state, {"rows": step}))
        state["weights"].fill_(-1.0)  # a later step writes over what was handed in
    answers.append(saver.close())
    saver.ranks.barrier()
    loaded = saver.load()
    assert loaded is not None and of_rank(loaded.state, loaded.step, dist.get_rank())
    return steps_in(folder), [answer and answer.error for answer in answers]


def test_a_save_in_the_background_holds_what_the_state_was_when_it_was_asked_for(tmp_path: Path) -> None:
    for steps, errors in together(in_the_background, 2, tmp_path):
        assert steps == [4, 3] and errors == [None] * 5


def test_a_persisting_process_that_is_killed_is_told_and_started_again(tmp_path: Path) -> None:
    saver = a_saver(tmp_path, asynchronous=True)
    save(saver, 1)
    assert saver.close() is not None
    saver.save(2, {"weights": torch.zeros(1 << 23)}, {})
    persister = saver._persister
    assert persister is not None and persister.pid is not None
    os.kill(persister.pid, signal.SIGKILL)
    told = saver.save(3, state_after(3, 0), {})
    assert told is not None and told.step == 2
    assert told.error == "the persisting process ended in mid-save: killed by SIGKILL"
    last = saver.close()
    assert last is not None and last.published == "3" and steps_in(tmp_path) == [3, 1]


def trains(folder: Path, ready: Path) -> None:
    saver = a_saver(folder, asynchronous=True, keep=2)
    loaded = saver.load()
    begun = 0 if loaded is None else loaded.step
    for step in range(begun + 1, 100_000):
        save(saver, step)
        if step == begun + 2:  # the first is published
            ready.touch()


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 20))])
def test_a_training_process_that_is_killed_at_random_leaves_whole_checkpoints_only(tmp_path: Path, seed: int) -> None:
    """One process, its persisting process beside it; the slow tier kills more often."""
    from support.warm import context

    delays = random.Random(seed)
    last = 0
    for kill in range(3):
        ready = tmp_path / f"ready-{kill}"
        process = context().Process(target=trains, args=(tmp_path / "run", ready))
        process.start()
        while not ready.exists():
            time.sleep(0.005)
        time.sleep(delays.uniform(0.0, 0.3))
        process.kill()
        process.join()
        items = Shelf(folder=tmp_path / "run").newest_first()
        assert all(whole(item.path) for item in items)
        newest = items[0].step if items else 0
        assert newest >= last
        last = newest
    assert last > 0
