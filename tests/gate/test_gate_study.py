"""The study of the gate counts what it says it counts, and its committed numbers come out again."""

import importlib.util
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from support.checkout import ROOT
from support.commits import one_of
from support.reruns import allowed

from paftbench.analysis.stats import wilson
from paftbench.environment.machine import differs, machine
from paftbench.experiment import load, plan
from paftbench.store.directory import write_planned
from paftbench.store.files import read_json
from paftbench.trial import run_trial

KEPT = ROOT / "results" / "reference" / "gate" / "study.json"
YAML = """
name: tiny
base:
  {workload: {name: quadratic, dim: 400, noise: 1}, steps: 20, world_size: 2, eval_every: 2,
   optimizer: {name: sgd, lr: 0.2, momentum: 0, weight_decay: 0}}
grids:
  - name: noise
    set: {faults: [{name: noise, model: gaussian_noise, degree: 1}]}
    axes:
      mitigation:
        ddp: {mitigations: []}
        paft_sync: {mitigations: [{name: paft_sync, period: 2}]}
tolerance: 20
expect:
  - {where: {mitigation: paft_sync}, value: quality_lost, at_most: 40}
  - {where: {grid: clean}, value: bitwise_identical, at_least: 1}
"""


@pytest.fixture(scope="module")
def script() -> Iterator[ModuleType]:
    spec = importlib.util.spec_from_file_location("gate_study", ROOT / "tools" / "gate_study.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["gate_study"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["gate_study"]


def test_the_study_counts_false_alarms_and_finds_what_is_worse(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "tiny.yaml"
    path.write_text(YAML)
    monkeypatch.setattr(script, "NAME", str(path))
    monkeypatch.setattr(script, "MITIGATED", ("paft_sync",))
    monkeypatch.setattr(script, "REGRESSIONS", {"a tenth of the rate": ("optimizer.lr=0.02",)})
    trained = {}
    for name, change in {"": (), **script.REGRESSIONS}.items():
        items = plan(load(str(path)), ["seeds=10", *change])
        for item in items:
            directory = tmp_path / item.id
            write_planned(directory, item)
            assert run_trial(directory) == 0
        results = {item.id: read_json(tmp_path / item.id / "result.json") for item in items}
        trained[name] = script.Trained(root=tmp_path, plans=[item.spec() for item in items], results=results)
    found = script.study(trained, 2)
    (shipped, *_), (_, by_one, *_) = found["shifts"][0]["gates"], found["shifts"][-1]["gates"]
    assert shipped["expect"]["fail"] == {"hits": 0, "of": 2, "interval": wilson(0, 2)}
    assert shipped["bound"]["fail"]["hits"] == 0
    # Three spreads are beyond a margin of one, and far within the tolerance.
    assert by_one["bound"]["fail"]["hits"] == 2 and found["shifts"][-1]["gates"][0]["bound"]["not pass"]["hits"] == 0
    (real,) = found["real"]
    assert real["gates"][0]["bound"]["fail"]["hits"] == 2 and real["size_in_spreads"]["golden"] > 10
    assert len(found["tails"]["golden"]) == 10
    text = script.table(found)
    assert "unchanged" in text and "as shipped 20.0000" in text and "0/2   0%..66%" in text


@pytest.mark.parametrize(
    ("kind", "row", "says"),
    [
        ("shifts", 0, "unchanged system"),
        *(("shifts", k, f"worse by {k}") for k in (1, 2, 3)),
        ("real", 0, "half the learning rate"),
        ("real", 1, "half as many synchronisations"),
    ],
)
def test_the_manual_quotes_the_kept_study(script: ModuleType, kind: str, row: int, says: str) -> None:
    """Does not pass (of these: fails), in `--mode bound`, at a margin of 2 and 3 spreads and as shipped."""
    page = (ROOT / "docs" / "check.md").read_text(encoding="utf-8")
    (line,) = [line for line in page.splitlines() if line.startswith(f"| {says}")]
    shipped, *by_spreads = read_json(KEPT)[kind][row]["gates"]
    gates = [*(by_spreads[script.SPREADS.index(factor)] for factor in (2.0, 3.0)), shipped]

    def rate(own: Any, verdict: str) -> str:
        return f"{100 * own['bound'][verdict]['hits'] / own['bound'][verdict]['of']:.0f}"

    expected = [(rate(own, "not pass"), rate(own, "fail")) for own in gates]
    assert re.findall(r"(\d+) % \((\d+) %\)", line) == expected


@pytest.mark.skipif(not KEPT.is_file(), reason="the study has no committed numbers")
def test_a_random_run_of_the_study_comes_out_again(script: ModuleType, tmp_path: Path) -> None:
    """Another run at each commit; its name is in a failure's output."""
    kept = read_json(KEPT)
    items = [item for item in plan(load(script.NAME), [f"seeds={script.SEEDS * kept['groups']}", script.FEW])]
    own = one_of("gate", [item for item in items if item.golden_id is None])
    print(own.name)
    write_planned(tmp_path, own)
    assert run_trial(tmp_path) == 0
    result = read_json(tmp_path / "result.json")
    metric, then = result["metric"][own.judge], kept["finals"]["golden"][own.trial.seed]
    if differs(machine(kept["environment"], "cpu"), machine(result["environment"], "cpu")):
        then = pytest.approx(then, abs=allowed("no fault, accuracy")["metric"])
    assert metric == then
