"""`paftbench check`: what is refused before anything runs, and what it warns of and writes."""

import shutil
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.mutants import LOADED
from support.small_gate import YAML, changed, check, copied, prepare, refused, spoil

from paftbench.cli import sweeping
from paftbench.cli.check_runs import with_plugin_files
from paftbench.experiment import load, plan
from paftbench.store.files import read_json, write_json


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepare(tmp_path_factory.mktemp("ran"))


@pytest.fixture
def folder(ran: Path, tmp_path: Path) -> Path:
    return copied(ran, tmp_path)


def test_an_unchanged_sweep_passes_in_both_modes(ran: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert check(ran, "--baseline", ran / "b.json") == 0
    assert check(ran, "--baseline", ran / "b.json", "--mode", "exact") == 0
    assert "small: pass" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda b: b.update(experiment="core/resnet"), "is a baseline of core/resnet, not of small"),
        (lambda b: b["data"].update(none="f" * 64), "is of other data: none was ffffffffffff, is "),
        (lambda b: b.update(schema=2), "has schema 2; this version reads baselines of schema 1"),
        (lambda b: b.update(judge="rank0"), "was judged by rank0, this by worst_rank"),
        (lambda b: b["trial"].update({"optimizer.lr": 0.2}), "golden/s0: optimizer.lr was 0.2, is 0.1; make it anew"),
        (
            lambda b: b["cells"]["noise/paft_sync"]["trial"].update({"mitigations.paft_sync.period": 5}),
            "noise/paft_sync/s0: mitigations.paft_sync.period was 5, is 2",
        ),
        (lambda b: b["cells"].pop("noise/ddp"), "has no trial noise/ddp/s0; make it anew with: paftbench check"),
        (lambda b: b["cells"]["golden"]["seeds"].pop("2"), "has no trial golden/s2"),
        (lambda b: b["cells"]["golden"]["seeds"].update({"7": b["cells"]["golden"]["seeds"]["1"]}), "golden/s7, which"),
        (lambda b: b.pop("cells"), "b.json lacks 'cells'"),
        (lambda b: b["cells"]["golden"]["seeds"]["0"].pop("end"), "b.json: cells.golden.seeds.0 lacks 'end'"),
    ],
)
def test_a_baseline_of_something_else_is_refused_before_anything_runs(
    folder: Path, capsys: pytest.CaptureFixture[str], change: Any, says: str
) -> None:
    changed(folder, change)
    shutil.rmtree(folder / "small")
    for mode in ("bound", "exact"):
        assert check(folder, "--baseline", folder / "b.json", "--mode", mode, run=True) == 2
        assert says in refused(capsys)
    assert not (folder / "small").exists()


def test_a_missing_baseline_is_told_how_to_make_one(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert check(folder, "seeds=4", "--baseline", folder / "none.json", run=True) == 2
    line = refused(capsys)
    made = f"paftbench check {folder / 'small.yaml'} seeds=4 --baseline {folder / 'none.json'} --update"
    assert f"there is no baseline {folder / 'none.json'}; make it with: {made}" in line


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--update"], "--update is about a baseline: say which file with --baseline FILE"),
        (["--mode", "exact"], "--mode exact is about a baseline"),
        (["--junit", "nowhere/x.xml"], "--junit (the file to write): nowhere is not a directory"),
        (["--baseline", "nowhere/b.json", "--update"], "--baseline (the file to write): nowhere is not a directory"),
        (["--baseline", "b.json", "--update", "seeds=2"], "a baseline of 2 seeds could never pass"),
        (["--baseline", "b.json", "tolerance=0"], "--mode bound needs a tolerance > 0"),
        (["mitigation=ddp"], "expect[0].where selects no cell of this sweep; mitigation has no label 'paft_sync'"),
        (["-j", "0"], "must be >= 1, got 0"),
        (["step=3"], "did you mean 'steps'?"),
    ],
)
def test_a_mistake_is_one_line_and_exit_2(
    folder: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    shutil.rmtree(folder / "small")
    assert check(folder, *arguments, run=True) == 2
    assert says in refused(capsys)
    assert not (folder / "small").exists()


def test_nothing_to_check_is_a_mistake(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "small.yaml").write_text(YAML.partition("expect:")[0])
    assert check(folder) == 2
    assert "has no `expect`, and no --baseline FILE is given: there is nothing to check" in refused(capsys)


@pytest.mark.parametrize(
    ("expect", "says"),
    [
        ("{value: gap_clsed, at_least: 1}", "no value 'gap_clsed'; did you mean 'gap_closed'?"),
        ("{value: outcome, never: [crashd]}", "never: no outcome 'crashd'; did you mean 'crashed'?"),
        ("{value: outcome, at_most: 0}", "the value outcome takes one bound, `never` with a list of outcomes"),
        ("{value: rank0, never: [crashed]}", "never is a bound of the value outcome; rank0 takes at_least and at_most"),
        ("{value: rank0, at_least: 2, at_most: 1}", "at_least 2 is above at_most 1: no number holds both"),
        ("{where: {mitigation: ddp}, value: gap_closed, at_least: 0}", "compares plain DDP with itself"),
        ("{where: {grid: golden}, value: quality_lost, at_most: 0}", "compares golden runs with themselves"),
        ("{where: {mitigation: []}, value: rank0, at_least: 0}", "expect[0]: where: mitigation lists no label"),
    ],
)
def test_an_expectation_that_cannot_be_judged_is_one_line(
    folder: Path, capsys: pytest.CaptureFixture[str], expect: str, says: str
) -> None:
    (folder / "small.yaml").write_text(YAML.partition("expect:")[0] + f"expect: [{expect}]\n")
    assert check(folder, run=True) == 2
    line = refused(capsys)
    assert says in line and "expect[0]" in line


def test_nothing_has_run_is_inconclusive(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.rmtree(folder / "small")
    assert check(folder) == 3
    assert "s0, s1, s2: has not run" in capsys.readouterr().out


def test_no_baseline_is_written_from_a_trial_in_error(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = (folder / "b.json").read_text()
    spoil(folder, "noise/ddp/s1", lambda result: result.update(outcome="error", reason="no memory"))
    assert check(folder, "--baseline", folder / "b.json", "--update") == 1
    out = " ".join(capsys.readouterr().out.split())
    assert "b.json is not written: a trial failed" in out and "ended in error: no memory" in out
    assert (folder / "b.json").read_text() == before


def test_reports_are_written_beside_the_table(folder: Path) -> None:
    files = [folder / name for name in ("j.xml", "f.json", "m.md")]
    flags = [part for pair in zip(("--junit", "--json", "--markdown"), files, strict=True) for part in pair]
    assert check(folder, *flags) == 0
    assert all(path.stat().st_size > 200 for path in files)
    assert read_json(folder / "f.json")["verdict"] == "pass"


def test_results_of_another_revision_are_warned_of(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spoil(folder, "s1", lambda result: result["environment"].update(git={"sha": "f" * 40, "dirty": False}))
    assert check(folder) == 0
    made = f"4 of 12 results kept from before were made by paftbench {version('paftbench')} fffffff, this is"
    assert made in capsys.readouterr().err


def test_results_from_before_a_plugin_was_changed_are_warned_of(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for path in (folder / "small").glob("*/trial.json"):
        write_json(path, {**read_json(path), "sources": {"quadratic": "0" * 64}})
    assert check(folder) == 0
    assert "12 of 12 results kept from before were made before a plugin was changed" in capsys.readouterr().err


def test_results_with_other_plugin_files_are_warned_of(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plugin = folder / "mine.py"
    plugin.write_text(LOADED)
    assert check(folder, "--plugin", plugin) == 0
    assert "12 of 12 results kept from before were made with other plugin files" in capsys.readouterr().err


def test_results_of_changed_plugins_run_again_and_errors_if_asked_for(
    ran: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policies = []

    def noted(root: Path, planned: Any, policy: Any, engine: Any) -> Any:
        assert len(planned) == 12
        policies.append((policy.rerun_stale, policy.retry_errors, policy.force))
        return SimpleNamespace(states=dict.fromkeys((item.id for item in planned), "stale"))

    monkeypatch.setattr(sweeping, "ran", noted)
    assert check(ran, run=True) == check(ran, "--retry-errors", run=True) == check(ran, "--force", run=True) == 0
    assert policies == [(True, False, False), (True, True, False), (True, False, True)]
    policies.clear()
    plugin = tmp_path / "mine.py"
    plugin.write_text(LOADED)
    assert check(ran, "--plugin", plugin, run=True) == 0
    assert policies == [(True, False, True), (True, False, False)]  # first those that other files have made


def test_an_edited_plugin_file_makes_every_result_stale(ran: Path, tmp_path: Path) -> None:
    plugin = tmp_path / "mine.py"
    plugin.write_text(LOADED)
    planned = plan(load(str(ran / "small.yaml")), plugins=[plugin])
    (before, *_) = with_plugin_files(planned)
    assert before.sources.items() > planned[0].sources.items()
    plugin.write_text(LOADED + "# edited")
    (after, *_) = with_plugin_files(planned)
    assert after.sources != before.sources
    assert with_plugin_files(plan(load(str(ran / "small.yaml")))) == plan(load(str(ran / "small.yaml")))


@pytest.mark.parametrize("strikes", [None, {}, {"drawn": 5, "landed": 5, "changed": None}, {"drawn": True}, "none"])
def test_a_trial_without_a_strike_count_passes_no_gate(
    folder: Path, capsys: pytest.CaptureFixture[str], strikes: Any
) -> None:
    spoil(folder, "noise/paft_sync/s1", lambda result: result.update(strikes=strikes))
    for mode in ("bound", "exact"):
        assert check(folder, "--baseline", folder / "b.json", "--mode", mode) == 2
        assert "result.json: strikes" in refused(capsys)


def test_a_trial_whose_strike_count_is_gone_passes_no_gate(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spoil(folder, "noise/paft_sync/s1", lambda result: result.pop("strikes"))
    assert check(folder) == 2
    assert "result.json lacks 'strikes'" in refused(capsys)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            lambda b: b["cells"]["golden"]["seeds"]["0"].update(quality="x"),
            "cells.golden.seeds.0.quality must be a number, got 'x'",
        ),
        (
            lambda b: b["cells"]["golden"]["seeds"]["0"].update(windows=[3]),
            "cells.golden.seeds.0.windows[0] must be text, got 3",
        ),
        (lambda b: b["cells"]["golden"]["seeds"].update({"²": {}}), "cells.golden.seeds.² lacks 'outcome'"),
        (lambda b: b["cells"].update(golden=None), "cells.golden must be a mapping, got None"),
        (lambda b: b.update(data={"none": 3}), "data.none must be text, got 3"),
    ],
)
def test_a_damaged_baseline_is_one_line(
    folder: Path, capsys: pytest.CaptureFixture[str], change: Any, says: str
) -> None:
    changed(folder, change)
    assert check(folder, "--baseline", folder / "b.json") == 2
    assert says in refused(capsys)
