"""Trials shared between sweeps: a copy is complete and this sweep's own, and nothing doubtful is copied."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.whole_result import VIEWS, whole_result

from paftbench.experiment import plan
from paftbench.experiment.file import parse_experiment
from paftbench.store.directory import Planned, read_record, try_claim, write_planned
from paftbench.store.files import read_json, read_lines, write_json
from paftbench.store.plans import known_record, state_of, tidy
from paftbench.sweep import sharing
from paftbench.sweep.sharing import share, shareable, siblings_of
from paftbench.sweep.sweep import Policy


def planned(name: str, **changes: Any) -> list[Planned]:
    """The same golden run and cell under the names of an experiment."""
    content = {
        "name": f"paper/{name}",
        "base": {"workload": {"name": "quadratic"}, "steps": 5},
        "axes": {"mitigation": {f"{name}_label": {}}},
        "grids": [{"name": name, "set": {"faults": [{"name": "noise", "model": "gaussian_noise", "degree": 0.1}]}}],
        **changes,
    }
    return plan(parse_experiment(content, name))


def finish(root: Path, items: list[Planned], outcome: str = "masked", **result: Any) -> None:
    """Directories as a sweep leaves them."""
    for item in items:
        directory = root / item.id
        write_planned(directory, item)
        (directory / "steps.jsonl").write_text('{"step":0}\n')
        (directory / "injections.jsonl").write_text('{"step":0,"rank":1}\n')
        (directory / "log.txt").write_text("a line\n")
        write_json(directory / "result.json", whole_result(item.spec(), outcome=outcome, **result))


def states(root: Path, items: list[Planned]) -> list[str]:
    return [state_of(known_record(root / item.id, item), item) for item in items]


def hidden(root: Path) -> list[str]:
    return [path.name for path in root.rglob(".*")]


@pytest.fixture
def first(tmp_path: Path) -> Path:
    """A finished sweep."""
    metric = {"name": "loss", "direction": "min", "chance": 1.0, **dict.fromkeys(VIEWS, float("nan"))}
    finish(tmp_path / "first", planned("first"), metric=metric, environment={"arguments": ["x"]})
    return tmp_path / "first"


def test_a_copy_is_a_complete_trial_of_the_sweep_it_goes_to(tmp_path: Path, first: Path) -> None:
    second, items = tmp_path / "second", planned("second")
    assert share(second, items, Policy(), siblings_of(second)) == {item.id for item in items}
    assert states(second, items) == ["done", "done"] and hidden(tmp_path) == []
    for item in items:
        record, original = read_record(second / item.id), read_json(first / item.id / "result.json")
        assert read_json(record.path / "trial.json") == json.loads(json.dumps(item.spec()))
        names = {key: getattr(item, key) for key in ("name", "experiment", "grid", "labels", "golden_id")}
        assert names["experiment"] == "paper/second"
        assert json.dumps(read_json(record.path / "result.json")) == json.dumps(original | names)
        assert list(read_lines(record.path / "steps.jsonl")) == [{"step": 0}]
        assert list(read_lines(record.path / "injections.jsonl")) == [{"step": 0, "rank": 1}]
        assert (record.path / "log.txt").read_text() == "a line\n"


def test_the_original_stays_as_it_was(tmp_path: Path, first: Path) -> None:
    before = {path: path.read_bytes() for path in first.rglob("*") if path.is_file()}
    share(tmp_path / "second", planned("second"), Policy(), siblings_of(tmp_path / "second"))
    assert {path: path.read_bytes() for path in first.rglob("*") if path.is_file()} == before


def test_a_copy_keeps_the_sources_of_the_original_and_is_stale_when_they_change(tmp_path: Path, first: Path) -> None:
    second, items = tmp_path / "second", planned("second")
    share(second, items, Policy(), siblings_of(second))
    changed = [replace(item, sources={**item.sources, "quadratic": "another"}) for item in items]
    assert states(second, changed) == ["stale", "stale"]
    assert read_json(second / items[0].id / "trial.json")["sources"] == dict(items[0].sources)


def test_stale_trials_are_not_copied(tmp_path: Path, first: Path) -> None:
    changed = [replace(item, sources={**item.sources, "quadratic": "another"}) for item in planned("second")]
    assert (
        share(tmp_path / "second", changed, Policy(), siblings_of(tmp_path / "second")) == set()
        and not (tmp_path / "second").exists()
    )


def test_trials_in_error_and_unfinished_ones_are_not_copied(tmp_path: Path) -> None:
    golden, cell = planned("first")
    finish(tmp_path / "first", [golden], outcome="error")
    write_planned(tmp_path / "first" / cell.id, cell)
    assert share(tmp_path / "second", planned("second"), Policy(), siblings_of(tmp_path / "second")) == set()


def test_a_crash_under_a_fault_is_a_result_and_copied(tmp_path: Path) -> None:
    finish(tmp_path / "first", planned("first"), outcome="crashed")
    assert len(share(tmp_path / "second", planned("second"), Policy(), siblings_of(tmp_path / "second"))) == 2


@pytest.mark.parametrize("changes", [{"judge": "rank0"}, {"tolerance": 0.5}, {"golden": False}], ids=str)
def test_trials_judged_in_another_way_are_not_copied(tmp_path: Path, first: Path, changes: dict[str, Any]) -> None:
    items = [item for item in planned("second", **changes) if item.grid == "second"]
    assert len(items) == 1 and (first / items[0].id).is_dir()
    assert share(tmp_path / "second", items, Policy(), siblings_of(tmp_path / "second")) == set()


def test_what_is_here_already_is_not_copied_again(tmp_path: Path, first: Path) -> None:
    second, items = tmp_path / "second", planned("second")
    finish(second, items[:1], mark="own")
    assert share(second, items, Policy(), siblings_of(second)) == {items[1].id}
    assert read_json(second / items[0].id / "result.json")["mark"] == "own"


def test_an_unfinished_trial_gives_way_to_the_copy_with_its_checkpoint(tmp_path: Path, first: Path) -> None:
    second, items = tmp_path / "second", planned("second")
    directory = second / items[0].id
    write_planned(directory, items[0])
    (directory / "checkpoints" / "2").mkdir(parents=True)
    (directory / "checkpoint.json").write_text("what an earlier version left")
    share(second, items, Policy(), siblings_of(second))
    assert states(second, items) == ["done", "done"] and list(directory.glob("checkpoint*")) == []


@pytest.mark.parametrize("side", ["first", "second"])
def test_a_trial_that_another_process_holds_is_left_alone(tmp_path: Path, first: Path, side: str) -> None:
    items = planned("second")
    (tmp_path / "second").mkdir()
    claim = try_claim(tmp_path / side / items[0].id)
    assert claim is not None
    try:
        assert share(tmp_path / "second", items, Policy(), siblings_of(tmp_path / "second")) == {items[1].id}
    finally:
        claim.release()


@pytest.mark.parametrize(
    ("policy", "outcome"),
    [(Policy(retry_errors=True), "error"), (Policy(force=True), "masked")],
    ids=["errors", "force"],
)
def test_what_would_run_again_takes_what_another_sweep_has_done(
    tmp_path: Path, first: Path, policy: Policy, outcome: str
) -> None:
    second, items = tmp_path / "second", planned("second")
    finish(second, items, outcome=outcome, mark="old")
    assert share(second, items[:1], policy, [first]) == {items[0].id}
    marks = [read_json(second / item.id / "result.json").get("mark") for item in items]
    assert marks == [None, "old"] and hidden(tmp_path) == []


def test_copies_come_only_from_the_directories_that_are_given(tmp_path: Path, first: Path) -> None:
    """What --force has not run again is no source for it, wherever else it lies."""
    second, items = tmp_path / "second", planned("second")
    finish(tmp_path / "a_stale_one", planned("a_stale_one"), mark="old")
    assert share(second, items, Policy(force=True), []) == set()
    assert len(share(second, items, Policy(force=True), [first])) == len(items)
    assert [read_json(second / item.id / "result.json").get("mark") for item in items] == [None, None]


@pytest.mark.parametrize("name", ["result.json", "trial.json"])
def test_a_record_that_cannot_be_read_elsewhere_is_no_business_of_this_sweep(
    tmp_path: Path, first: Path, name: str
) -> None:
    second, items = tmp_path / "second", planned("second")
    (first / items[0].id / name).write_text('{"schema": 2}')
    assert share(second, items, Policy(), [first]) == {items[1].id}


@pytest.mark.parametrize("cut", ["copyfile", "write_json", "adopt"])
def test_a_copy_that_is_cut_off_is_never_taken_for_a_result(
    tmp_path: Path, first: Path, cut: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cut before each call that writes, as a kill would; afterwards the copy is made as if nothing had been."""
    second, items = tmp_path / "second", planned("second")
    owner: Any = shutil if cut == "copyfile" else sharing
    real: Callable[..., Any] = getattr(owner, cut)
    for allowed in range(3):
        calls = 0

        def counted(*arguments: Any, **options: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls > allowed:  # noqa: B023
                raise KeyboardInterrupt
            return real(*arguments, **options)

        monkeypatch.setattr(owner, cut, counted)
        with pytest.raises(KeyboardInterrupt):
            share(second, items[:1], Policy(), siblings_of(second))
            raise KeyboardInterrupt  # more calls were allowed than one copy makes
        assert states(second, items[:1])[0] in ("missing", "done")
        assert not (second / items[0].id / "result.json").exists() or calls <= allowed
        monkeypatch.setattr(owner, cut, real)
    tidy(second)
    share(second, items, Policy(), siblings_of(second))
    assert states(second, items) == ["done", "done"] and hidden(tmp_path) == []
    assert list(second.glob(".rerun-*")) == []


def test_siblings_are_the_directories_beside_and_a_plan_only_looks(tmp_path: Path, first: Path) -> None:
    (tmp_path / ".hidden").mkdir()
    (tmp_path / "file").write_text("")
    second, items = tmp_path / "second", planned("second")
    assert siblings_of(second) == [first] and siblings_of(tmp_path / "nowhere" / "second") == []
    assert [source for _, source in shareable(second, items, Policy(), [first])] == [first / item.id for item in items]
    assert not second.exists()
