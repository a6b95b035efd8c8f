"""Baselines: how they are written, and what each mode compares."""

import json
from collections.abc import Callable
from dataclasses import replace
from math import sqrt
from pathlib import Path
from typing import Any

import pytest
from support.checkout import ROOT
from support.commits import one_of
from support.reruns import allowed, script
from support.small_gate import YAML, changed, check, copied, prepare, spoil, sweep_in
from support.synthetic_results import FAULT, GPT2, RESNET, cell, golden, spec, write_trial
from support.whole_result import whole_result

from paftbench.analysis.runs import Sweep
from paftbench.environment.machine import PARTS, differs, machine
from paftbench.environment.record import environment
from paftbench.experiment import load, plan
from paftbench.gate import bound, exact, sweep_of
from paftbench.gate.baseline import check_fits, make, read, write
from paftbench.gate.finding import Finding
from paftbench.gate.trajectory import end_of, machine_of, tail_of, windows_of
from paftbench.records.environment import Environment
from paftbench.records.result import Metric, StrikeCounts, unmeasured
from paftbench.records.trial import LrSchedule
from paftbench.store.directory import read_result, read_results, write_json, write_planned
from paftbench.store.files import read_json
from paftbench.theory import drift
from paftbench.training.optimizers import lr_at
from paftbench.trial import run_trial


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepare(tmp_path_factory.mktemp("ran"))


@pytest.fixture
def folder(ran: Path, tmp_path: Path) -> Path:
    return copied(ran, tmp_path)


def by_value(folder: Path, margin: float = 1.0) -> dict[tuple[str, str], Finding]:
    findings = bound.compare_bounds(read(folder / "b.json"), sweep_in(folder), margin)
    return {(finding.subject, finding.value.removeprefix("baseline ")): finding for finding in findings}


def test_a_baseline_is_small_text_that_names_no_machine(ran: Path) -> None:
    text = (ran / "b.json").read_text()
    assert len(text) < 12_000 and max(map(len, text.splitlines())) < 400
    content = json.loads(text)
    assert set(content["machine"]) == set(PARTS)
    assert str(ran) not in text
    write(ran / "again.json", make(sweep_in(ran)))
    assert (ran / "again.json").read_text() == text


def test_worse_is_up_or_down_by_each_cells_own_metric(tmp_path: Path) -> None:
    def sweep(name: str, accuracy: float, loss: float) -> Sweep:
        for grid, workload, metric, value in (
            ("images", RESNET, "accuracy", accuracy), ("text", GPT2, "val_loss", loss),
        ):  # fmt: skip
            for seed in range(3):
                trial = spec(workload, steps=10, seed=seed, faults=[FAULT], mitigations=[])
                curve = [(0.0,) * 3, (value,) * 3]
                write_trial(tmp_path / name, trial, grid=grid, labels={"mitigation": "ddp"}, metric_name=metric,
                            curve=curve, drawn=5)  # fmt: skip
        records = read_results(tmp_path / name)
        results = {one.id: one.result for one in records if one.result}
        return sweep_of(tmp_path / name, [one.planned for one in records], results)

    write(tmp_path / "b.json", make(sweep("then", 0.9, 2.0)))
    for name, accuracy, loss, verdicts in (("up", 0.95, 2.1, ["pass", "fail"]), ("down", 0.8, 1.9, ["fail", "pass"])):
        found = bound.compare_bounds(read(tmp_path / "b.json"), sweep(name, accuracy, loss), 0.02)
        assert [one.verdict for one in found if one.value == "baseline quality"] == verdicts


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
    assert found["golden", "divergence"].reason.startswith("s0, s1, s2: has 0.500, the baseline 0.000")


@pytest.mark.parametrize("value", ["divergence", "bytes"])
def test_what_is_no_longer_measured_is_inconclusive(folder: Path, value: str) -> None:
    def forget(result: dict[str, Any]) -> None:
        if value == "divergence":
            result["divergence"]["max"] = None
        else:
            result["gradient_bytes"] = None

    spoil(folder, "noise/paft_sync", forget)
    one = by_value(folder)["noise paft_sync", value]
    assert one.verdict == "inconclusive" and "s0, s1, s2: was measured for the baseline only" in one.reason


def test_a_quarter_more_overhead_fails_where_it_was_timed(tmp_path: Path) -> None:
    def sweep(name: str, step_s: float) -> Sweep:
        timed = {"trial": {"placement": "torchrun"}, "curve": [(0.1,) * 3, (0.98,) * 3]}
        golden(tmp_path / name, [0.98] * 3, step_s=0.1, **timed)
        cell(tmp_path / name, "ddp", [0.9] * 3, step_s=0.1, **timed)
        cell(tmp_path / name, "paft_sync", [0.98] * 3, step_s=step_s, **timed)
        records = read_results(tmp_path / name)
        results = {one.id: one.result for one in records if one.result}
        return sweep_of(tmp_path / name, [one.planned for one in records], results)

    write(tmp_path / "b.json", make(sweep("then", 0.11)))
    for step_s, verdict in ((0.12, "pass"), (0.15, "fail")):
        found = bound.compare_bounds(read(tmp_path / "b.json"), sweep(str(step_s), step_s), 0.02)
        assert [one.verdict for one in found if one.value == "baseline overhead"] == [verdict]


def test_what_others_are_measured_by_is_not_held(ran: Path) -> None:
    assert {subject for subject, _ in by_value(ran)} == {"golden", "noise paft_sync"}


def test_plain_ddp_is_held_where_nothing_mitigates(tmp_path: Path) -> None:
    path = tmp_path / "alone.yaml"
    path.write_text(YAML.replace("        paft_sync: {mitigations: [{name: paft_sync, period: 2}]}\n", ""))
    plans = [item.plan() for item in plan(load(str(path)))]
    assert [cell.text for cell in bound.held(sweep_of(tmp_path, plans, {}))] == ["golden", "ddp"]


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


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda m: m["processor"].update(model="none", vendor="Unmade"), "was Unmade, processor.model"),
        (lambda m: m["versions"].update(torch="2.9.1"), "was 2.9.1"),
        (lambda m: m["switches"].update(ONEDNN_OF_THEN="AVX2"), "switches.ONEDNN_OF_THEN not set, was AVX2"),
        (lambda m: m.pop("processor"), "processor was not recorded"),
    ],
)
def test_exact_on_another_machine_is_inconclusive_and_says_what_differs_or_was_not_recorded(
    folder: Path, capsys: pytest.CaptureFixture[str], change: Callable[[dict[str, Any]], Any], says: str
) -> None:
    """Even where every weight is another one, as on another processor it is."""
    changed(folder, lambda b: change(b["machine"]))
    spoil(folder, "golden", lambda result: result.update(params_sha256=["0" * 64] * 2))
    assert check(folder, "--baseline", folder / "b.json", "--mode", "exact") == 3
    out = " ".join(capsys.readouterr().out.split())
    assert "not compared, not known to be the same machine: " in out and says in out
    assert check(folder, "--baseline", folder / "b.json") == 0


def test_exact_on_results_of_several_machines_is_inconclusive(folder: Path) -> None:
    """One trial of the sweep was run under a switch, the others as the baseline was."""
    spoil(folder, "noise/ddp/s2", lambda result: result["environment"]["switches"].update(MKL_CBWR="AVX2"))
    found = exact.compare_bits(read(folder / "b.json"), sweep_in(folder))
    assert [one.verdict for one in found] == ["inconclusive"] and "switches.MKL_CBWR AVX2, was not set" in found[
        0
    ].reason


def test_half_the_synchronisations_are_beyond_the_factor_of_divergence() -> None:
    rates = [lr_at(step, 100, 0.1, LrSchedule(name="linear")) for step in range(100)]
    often, seldom = (drift(rates, momentum=0.9, weight_decay=1e-4, period=period).before for period in (10, 20))
    assert sqrt(max(seldom) / max(often)) > 1.05 * bound.FACTOR


def test_the_committed_baseline_is_of_the_shipped_experiment() -> None:
    """That it is also what the code gives is for `make gate`, which trains."""
    plans = [item.plan() for item in plan(load("ci/quick"))]
    check_fits(read(ROOT / "results" / "baselines" / "ci-quick.json"), sweep_of(Path("."), plans, {}), "")


@pytest.mark.parametrize("part", ["processor", "bits", "switches"])
def test_the_committed_baseline_holds_no_other_machine_to_its_bits(part: str) -> None:
    """Versions and capability as here, another processor: every trial has other bits, and none is called a failure."""
    baseline = read(ROOT / "results" / "baselines" / "ci-quick.json")
    there = environment() | {part: {"model": "AMD EPYC", "convolution": "0", "ONEDNN_MAX_CPU_ISA": "AVX2"}}
    plans = [item.plan() for item in plan(load("ci/quick"))]
    ran = replace(
        unmeasured(plans[0], "crashed"),
        environment=Environment(fields=there),
        outcome="masked",
        strikes=StrikeCounts(drawn=1, landed=1, changed=1),
        metric=Metric(name="loss", direction="min", chance=1.0, mean_model=1.0, worst_rank=1.0, rank0=1.0),
    )
    found = exact.compare_bits(baseline, sweep_of(Path("."), plans, {own.id: ran for own in plans}))
    assert [one.verdict for one in found] == ["inconclusive"]
    assert part in {name.partition(".")[0] for name in differs(baseline.machine, machine(there, "cpu"))}


def test_a_random_run_of_the_committed_baseline_comes_out_again(tmp_path: Path) -> None:
    """Another run at each commit; the same bits on the same machine, else within what was measured."""
    baseline = read(ROOT / "results" / "baselines" / "ci-quick.json")
    item = one_of("baseline", plan(load("ci/quick")))
    print(item.name)
    write_planned(tmp_path / item.id, item)
    if item.golden_id is not None:
        (tmp_path / item.golden_id).mkdir()
        write_json(tmp_path / item.golden_id / "result.json", whole_result({**item.spec(), "id": item.golden_id}))
    assert run_trial(tmp_path / item.id) == 0
    (run,) = sweep_of(tmp_path, [item.plan()], {item.id: read_result(tmp_path / item.id)}).selected
    then = baseline.entry(run)
    if not differs(baseline.machine, machine_of(run)):
        assert [window.sha256 for window in windows_of(run)] == list(then.windows) and end_of(run) == then.end
    else:
        most = allowed(script().kind_of(item.spec()["trial"], read_json(tmp_path / item.id / "result.json")))["metric"]
        assert tail_of(run) == pytest.approx(then.quality, abs=most)
