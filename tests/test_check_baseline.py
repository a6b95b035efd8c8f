"""Baselines: what fits, what is refused before anything runs, and the command around it all."""

import json
import random
import shutil
from collections.abc import Callable
from datetime import date
from math import sqrt
from pathlib import Path
from typing import Any

import pytest
from mutants import LOADED

from paftbench.analysis.check import bound, exact, sweep_of
from paftbench.analysis.check.baseline import check_fits, make, read, write
from paftbench.analysis.check.finding import Finding
from paftbench.analysis.check.trajectory import end_of, machine_of, tail_of, windows_of
from paftbench.analysis.runs import Sweep
from paftbench.cli.main import exit_code
from paftbench.config import LrSchedule
from paftbench.experiment import load, plan
from paftbench.optimizers import lr_at
from paftbench.store import read_json, read_record, write_json, write_planned
from paftbench.theory import drift
from paftbench.trial import run_trial

ROOT = Path(__file__).resolve().parent.parent

YAML = """
name: small
base:
  {workload: {name: quadratic, dim: 200, noise: 0.5}, steps: 20, world_size: 2, eval_every: 2,
   optimizer: {name: sgd, lr: 0.1, momentum: 0, weight_decay: 0}}
grids:
  - name: noise
    set: {faults: [{name: noise, model: gaussian_noise, degree: 1}]}
    axes:
      mitigation:
        ddp: {mitigations: []}
        paft_sync: {mitigations: [{name: paft_sync, period: 2}]}
seeds: 3
averaging_limit: true
tolerance: 1
expect:
  - {where: {mitigation: paft_sync}, value: gap_closed, at_least: 0.3}
"""


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The experiment file, its trials beside it, and a baseline of them."""
    folder = tmp_path_factory.mktemp("ran")
    path = folder / "small.yaml"
    path.write_text(YAML)
    for item in plan(load(str(path))):
        directory = folder / "small" / item.id
        write_planned(directory, item)
        assert run_trial(directory) == 0
    assert check(folder, "--baseline", folder / "b.json", "--update") == 0
    return folder


@pytest.fixture
def folder(ran: Path, tmp_path: Path) -> Path:
    """A copy that a test may spoil."""
    return Path(shutil.copytree(ran, tmp_path / "copy"))


def check(folder: Path, *arguments: Any, run: bool = False) -> int:
    given = ["check", folder / "small.yaml", "--out", folder, *([] if run else ["--no-run"]), *arguments]
    return exit_code([str(argument) for argument in given])


def refused(capsys: pytest.CaptureFixture[str]) -> str:
    """The one line of an error of use, and nothing on stdout."""
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("paftbench: error: ") and err.count("\n") == 1, (out, err)
    return err


def changed(folder: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    content = read_json(folder / "b.json")
    change(content)
    write_json(folder / "b.json", content)


def spoil(folder: Path, name: str, change: Callable[[dict[str, Any]], Any]) -> None:
    """Change the results of the trials whose name contains `name`."""
    for path in (folder / "small").glob("*/result.json"):
        result = read_json(path)
        if name in result["name"]:
            change(result)
            write_json(path, result)


def sweep_in(folder: Path) -> Sweep:
    plans = [item.spec() for item in plan(load(str(folder / "small.yaml")))]
    results = {own["id"]: read_record(folder / "small" / own["id"]).result or {} for own in plans}
    return sweep_of(folder / "small", plans, results)


def by_value(folder: Path, margin: float = 1.0) -> dict[tuple[str, str], Finding]:
    findings = bound.compare_bounds(read(folder / "b.json"), sweep_in(folder), margin)
    return {(finding.subject, finding.value.removeprefix("baseline ")): finding for finding in findings}


def test_an_unchanged_sweep_passes_in_both_modes(ran: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert check(ran, "--baseline", ran / "b.json") == 0
    assert check(ran, "--baseline", ran / "b.json", "--mode", "exact") == 0
    assert "small: pass" in capsys.readouterr().out


def test_a_baseline_is_small_text_that_names_no_machine(ran: Path) -> None:
    text = (ran / "b.json").read_text()
    assert len(text) < 12_000 and max(map(len, text.splitlines())) < 400
    content = json.loads(text)
    assert set(content["machine"]) == {"system", "machine", "cpu_capability", "device", "gpus", "torch", "threads"}
    assert str(ran) not in text
    write(ran / "again.json", make(sweep_in(ran)))
    assert (ran / "again.json").read_text() == text


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
        (lambda b: b.pop("cells"), "is no baseline: it lacks 'cells'"),
        (lambda b: b["cells"]["golden"]["seeds"]["0"].pop("end"), "golden/s0 lacks 'end'"),
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
    assert "s0 has not run" in capsys.readouterr().out


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
    assert "4 of 12 results kept from before were made by paftbench 0.1.0 fffffff, this is" in capsys.readouterr().err


def test_results_with_other_plugin_files_are_warned_of(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plugin = folder / "mine.py"
    plugin.write_text(LOADED)
    assert check(folder, "--plugin", plugin) == 0
    assert "12 of 12 results kept from before were made with other plugin files" in capsys.readouterr().err


def test_worse_by_more_than_the_margin_fails_and_better_passes(folder: Path) -> None:
    def by(loss: float) -> Callable[[dict[str, Any]], None]:
        def change(result: dict[str, Any]) -> None:
            result["history"]["worst_rank"] = [value + loss for value in result["history"]["worst_rank"]]

        return change

    key = ("noise paft_sync", "quality")
    spoil(folder, "noise/paft_sync", by(0.5))
    one = by_value(folder)[key]
    assert one.verdict == "pass" and one.number == pytest.approx(0.5)
    spoil(folder, "noise/paft_sync", by(1.0))
    assert by_value(folder)[key].verdict == "fail"
    spoil(folder, "noise/paft_sync", by(-9.0))
    assert by_value(folder)[key].verdict == "pass"


def test_one_seed_beyond_the_margin_is_inconclusive_and_says_what_would_tell(folder: Path) -> None:
    def change(result: dict[str, Any]) -> None:
        result["history"]["worst_rank"][-1] += 4.0  # of a tail of two evaluations

    spoil(folder, "noise/paft_sync/s1", change)
    one = by_value(folder)["noise paft_sync", "quality"]
    assert one.verdict == "inconclusive"
    assert "reaches beyond; about" in one.reason and "a tolerance of 2.000 would tell" in one.reason


def test_a_run_that_broke_down_where_the_baseline_did_not_fails(folder: Path) -> None:
    spoil(folder, "noise/paft_sync/s2", lambda result: result.update(outcome="nonfinite"))
    one = by_value(folder)["noise paft_sync", "quality"]
    assert one.verdict == "fail" and one.reason == "s2 was nonfinite, was degraded"


def test_twice_the_divergence_or_bytes_fail_and_drift_without_any_before(folder: Path) -> None:
    spoil(folder, "noise/paft_sync", lambda result: result["divergence"].update(max=2 * result["divergence"]["max"]))
    spoil(
        folder, "noise/paft_sync", lambda result: result["mitigation"].update(bytes=2 * result["mitigation"]["bytes"])
    )
    spoil(folder, "golden", lambda result: result["divergence"].update(max=0.5))
    found = by_value(folder)
    assert found["noise paft_sync", "divergence"].verdict == "fail"
    assert found["noise paft_sync", "bytes"].number == 2.0 and found["noise paft_sync", "bytes"].verdict == "fail"
    assert found["golden", "divergence"].reason.startswith("s0 has 0.500, the baseline 0.000")


def test_what_others_are_measured_by_is_not_held(ran: Path) -> None:
    assert {subject for subject, _ in by_value(ran)} == {"golden", "noise paft_sync"}


def test_plain_ddp_is_held_where_nothing_mitigates(tmp_path: Path) -> None:
    path = tmp_path / "alone.yaml"
    path.write_text(YAML.replace("        paft_sync: {mitigations: [{name: paft_sync, period: 2}]}\n", ""))
    specs = [item.spec() for item in plan(load(str(path)))]
    assert [cell.text for cell in bound.held(sweep_of(tmp_path, specs, {}))] == ["golden", "ddp"]


def test_exact_names_the_first_window_that_differs(folder: Path) -> None:
    for path in (folder / "small").glob("*/steps.jsonl"):
        if read_json(path.parent / "result.json")["name"] == "noise/paft_sync/s1":
            rows = path.read_text().splitlines()
            rows[7] = rows[7].replace('"lr":0.1', '"lr":0.10000000000000002')
            path.write_text("\n".join(rows) + "\n")
    found = {one.subject: one for one in exact.compare_bits(read(folder / "b.json"), sweep_in(folder))}
    assert {subject: one.verdict for subject, one in found.items()} == {
        "golden": "pass", "noise ddp": "pass", "noise averaging_limit": "pass", "noise paft_sync": "fail",
    }  # fmt: skip
    assert found["noise paft_sync"].reason.startswith("s1 first differs in steps 6..7")


def test_exact_sees_other_final_weights_alone(folder: Path) -> None:
    spoil(folder, "golden/s0", lambda result: result.update(params_sha256=["0" * 64] * 2))
    found = exact.compare_bits(read(folder / "b.json"), sweep_in(folder))
    assert [one.reason for one in found if one.verdict == "fail"] == [
        "s0 has other final weights or strikes, and the same course"
    ]


def test_exact_on_another_kind_of_machine_is_inconclusive_and_says_what_differs(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    changed(folder, lambda b: b["machine"].update(cpu_capability="SVE256", torch="2.9.1"))
    assert check(folder, "--baseline", folder / "b.json", "--mode", "exact") == 3
    out = " ".join(capsys.readouterr().out.split())
    assert "not compared, another kind of machine: cpu_capability" in out and "was SVE256, torch" in out
    assert check(folder, "--baseline", folder / "b.json") == 0


def test_half_the_synchronisations_are_beyond_the_factor_of_divergence() -> None:
    rates = [lr_at(step, 100, 0.1, LrSchedule(name="linear")) for step in range(100)]
    often, seldom = (drift(rates, momentum=0.9, weight_decay=1e-4, period=period).before for period in (10, 20))
    assert sqrt(max(seldom) / max(often)) > 1.05 * bound.FACTOR


def test_the_committed_baseline_is_of_the_shipped_experiment() -> None:
    """That it is also what the code gives is for `make gate`, which trains."""
    specs = [item.spec() for item in plan(load("ci/quick"))]
    check_fits(read(ROOT / "results" / "baselines" / "ci-quick.json"), sweep_of(Path("."), specs, {}), "")


def test_a_random_run_of_the_committed_baseline_comes_out_again(tmp_path: Path) -> None:
    """Another run each day; the same bits on the same kind of machine, else the same within the tolerance."""
    baseline = read(ROOT / "results" / "baselines" / "ci-quick.json")
    item = random.Random(f"baseline {date.today()}").choice(plan(load("ci/quick")))
    print(item.name)
    write_planned(tmp_path / item.id, item)
    if item.golden_id is not None:
        (tmp_path / item.golden_id).mkdir()
        write_json(tmp_path / item.golden_id / "result.json", {"metric": {item.judge: 1.0}, "params_sha256": []})
    assert run_trial(tmp_path / item.id) == 0
    (run,) = sweep_of(tmp_path, [item.spec()], {item.id: read_record(tmp_path / item.id).result or {}}).selected
    then = baseline.entry(run)
    if machine_of(run) == baseline.machine:
        assert [window.sha256 for window in windows_of(run)] == list(then.windows) and end_of(run) == then.end
    else:
        assert tail_of(run) == pytest.approx(then.quality, abs=0.05)
