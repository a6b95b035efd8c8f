"""The paper's real models start at the paper's scale: every item for two steps, on small data."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from support.paper_designs import DESIGNS, model_of

from paftbench.cli.main import exit_code
from paftbench.experiment import load, plan
from paftbench.store.directory import Planned, read_json, read_results, write_planned
from paftbench.trial import run_trial
from paftbench.workloads import resnet, text
from paftbench.workloads.images import load_images

RESNET = ["workload.data=digits", "world_size=2", "batch_per_rank=2", "epochs=null", "nodes=1"]
GPT2 = ["workload.data=pydoc", "workload.context=64", "world_size=2", "batch_per_rank=1"]
SHORT = ["steps=2", "eval_every=2", "seeds=1", "checkpoint.every=0"]
FAST = ("table1", "fig9b")
STARTED = [pytest.param(item, marks=() if item in FAST else pytest.mark.slow) for item in DESIGNS if item != "table3"]


def started(item: str) -> list[Planned]:
    """The last method's strongest trial of each model, and the golden run it is judged by."""
    chosen: list[Planned] = []
    for name, small in (("resnet", RESNET), ("gpt2", GPT2)):
        narrowed = load(f"paper/{item}", "paper")
        grids = tuple(grid for grid in narrowed.grids if item != "optimizer_state" or grid.name == name)
        if name in DESIGNS[item].model or item == "optimizer_state":
            chosen += plan(replace(narrowed, grids=grids), [*small, *SHORT])[-1:]
    return chosen


@pytest.fixture
def little_held_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Evaluations of a few items: of real models on CPUs they would take most of the time."""
    images = load_images("digits")
    few = replace(images, test_NCHW=images.test_NCHW[:20], test_labels_N=images.test_labels_N[:20])
    monkeypatch.setattr(resnet, "load_images", lambda name: few)
    monkeypatch.setattr(text, "HELD_OUT_TOKENS", 128)


@pytest.mark.usefixtures("little_held_out")
@pytest.mark.parametrize("item", STARTED)
def test_an_item_starts_at_the_papers_scale_with_its_real_model(item: str, tmp_path: Path) -> None:
    items = started(item)
    assert {model_of(each.trial) for each in items} == set(DESIGNS[item].model.split())
    for each in items:
        # Judged by nothing: a second run of a model this large would only take time.
        alone = replace(each, golden_id=None)
        write_planned(tmp_path / each.id, alone)
        threads = torch.get_num_threads()
        try:
            assert run_trial(tmp_path / each.id) == 0
        finally:
            torch.set_num_threads(threads)
        result = read_json(tmp_path / each.id / "result.json")
        assert result["outcome"] != "error" and result["strikes"]["landed"] == result["strikes"]["drawn"]
        assert result["parameters"] > 11e6 and len(list(read_results(tmp_path / each.id)[0].steps())) == 2


@pytest.mark.slow
def test_table_3_starts_at_the_papers_scale_as_processes_of_ddp(tmp_path: Path) -> None:
    narrowed = ["workers=4", "mitigation=paft", "steps=3", "eval_every=3", "seeds=1", "nodes=1"]
    given = [*narrowed, "workload.data=digits", "world_size=2", "batch_per_rank=2"]
    assert exit_code(["paper", "table3", "--scale", "paper", "--out", str(tmp_path), *given]) == 0
    (record,) = read_results(tmp_path / "paper" / "scale-paper" / "table3")
    assert record.result is not None and record.result.time.overhead_valid
    assert record.planned.trial.placement == "torchrun" and record.planned.trial.procs == 2
