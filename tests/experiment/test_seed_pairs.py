"""`seeds` that list pairs: noise and initialisation varied apart, goldens shared by seed, no run lost on the way."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from paftbench.analysis.cells import cells, flat, gap_closed
from paftbench.analysis.runs import Sweep, samples_of
from paftbench.cli.main import exit_code
from paftbench.experiment import load, plan
from paftbench.experiment.file import parse_experiment
from paftbench.gate import sweep_of
from paftbench.gate.baseline import check_fits, make, read, write
from paftbench.records.seeds import Seed, parse_seed
from paftbench.store.directory import Planned, read_result, write_planned
from paftbench.trial import run_trial

PAIRS = "[[0, 100], [0, 101], [0, 102], [1, 100]]"
YAML = f"""
name: pairs
base:
  {{workload: {{name: quadratic, dim: 50, noise: 0.5}}, steps: 6, world_size: 2, eval_every: 3,
   optimizer: {{name: sgd, lr: 0.1, momentum: 0, weight_decay: 0}}}}
grids:
  - name: noise
    set: {{faults: [{{name: noise, model: gaussian_noise, degree: 1}}]}}
    axes:
      mitigation:
        ddp: {{mitigations: []}}
        paft_sync: {{mitigations: [{{name: paft_sync, period: 2}}]}}
seeds: {PAIRS}
clean: true
averaging_limit: true
tolerance: 0.001
"""


def planned(*overrides: str, **changes: Any) -> list[Planned]:
    noise = {"faults": [{"name": "noise", "model": "gaussian_noise", "degree": 0.1}]}
    base = {"workload": {"name": "quadratic"}, "steps": 5}
    content = {"name": "x", "base": base, "grids": [{"name": "noise", "set": noise}], **changes}
    return plan(parse_experiment(content, "x.yaml"), overrides)


def named(items: list[Planned]) -> dict[str, tuple[int, int | None]]:
    return {item.name: (item.trial.seed, item.trial.fault_seed) for item in items}


@pytest.mark.parametrize("given", [{"seeds": [[0, 100], [0, 101], [1, 100], 2]}, {}])
def test_a_pair_is_a_seed_and_a_fault_seed_and_golden_runs_are_one_per_seed(given: dict[str, Any]) -> None:
    overrides = [] if given else ["seeds=[[0, 100], [0, 101], [1, 100], 2]"]
    items = planned(*overrides, **given)
    assert named(items) == {
        "golden/s0": (0, 0), "golden/s1": (1, 1), "golden/s2": (2, 2),
        "noise/s0-f100": (0, 100), "noise/s0-f101": (0, 101), "noise/s1-f100": (1, 100), "noise/s2": (2, 2),
    }  # fmt: skip
    golden = {item.trial.seed: item.id for item in items if item.grid == "golden"}
    assert all(item.golden_id == golden[item.trial.seed] for item in items if item.grid == "noise")


def test_a_pair_of_equal_seeds_is_that_seed() -> None:
    assert named(planned(seeds=[[3, 3], 3], golden=False)) == {"noise/s3": (3, 3)}
    assert {item.id for item in planned(seeds=[[3, 3]])} == {item.id for item in planned(seeds=[3])}


def test_cells_without_faults_have_one_run_for_all_fault_seeds_of_a_seed() -> None:
    axes = {"mitigation": {"ddp": {}, "sync": {"mitigations": [{"name": "paft_sync"}]}}}
    items = planned(seeds=[[0, 1], [0, 2], [1, 2]], axes=axes, grids=[{"name": "plain"}], golden=False)
    assert list(named(items)) == ["plain/ddp/s0", "plain/ddp/s1", "plain/sync/s0", "plain/sync/s1"]


def test_a_fault_seed_beside_pairs_is_refused_and_beside_seeds_it_is_that_of_all() -> None:
    for override in ("fault_seed=7", "fault_seed=7,8"):
        with pytest.raises(ValueError, match="fault_seed 7 stands beside seeds that list it in pairs"):
            planned(override, seeds=[[0, 0]])
    assert named(planned("fault_seed=7", seeds=2, golden=False)) == {"noise/s0": (0, 7), "noise/s1": (1, 7)}


@pytest.mark.parametrize("seed", [Seed(0), Seed(12), Seed(0, 100), Seed(3, 0)])
def test_a_seed_and_its_text_are_inverses(seed: Seed) -> None:
    assert parse_seed(str(seed)) == seed
    assert parse_seed(f"x{seed}") is None


def test_seeds_are_ordered_as_numbers() -> None:
    ordered = [Seed(0), Seed(0, 2), Seed(0, 10), Seed(2), Seed(10)]
    assert sorted(ordered[::-1]) == ordered


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The experiment and its finished trials."""
    folder = tmp_path_factory.mktemp("pairs")
    (folder / "pairs.yaml").write_text(YAML)
    for item in plan(load(str(folder / "pairs.yaml"))):
        write_planned(folder / "pairs" / item.id, item)
        assert run_trial(folder / "pairs" / item.id) == 0
    return folder


def sweep_in(folder: Path, seeds: str = PAIRS) -> Sweep:
    plans = [item.plan() for item in plan(load(str(folder / "pairs.yaml")), [f"seeds={seeds}"])]
    found = {own.id: folder / "pairs" / own.id for own in plans}
    results = {id: read_result(path) for id, path in found.items() if path.is_dir()}
    return sweep_of(folder / "pairs", plans, results)


def test_every_pair_is_a_run_of_its_cell_with_strikes_of_its_own(folder: Path) -> None:
    sweep = sweep_in(folder)
    by_label = {str(cell.labels.get("mitigation", cell.grid)): cell for cell in cells(sweep) if cell.grid == "noise"}
    for cell in by_label.values():
        assert [str(run.sample) for run in cell.runs] == ["0-f100", "0-f101", "0-f102", "1-f100"]
        assert cell.seeds == 4
    ddp = by_label["ddp"].runs
    assert len({run.metric("worst_rank") for run in ddp}) == 4
    assert [str(seed) for seed in samples_of(sweep.selected)] == ["0-f100", "0-f101", "0-f102", "1-f100"]
    counts = Counter(cell.grid for cell in cells(sweep) for _ in cell.runs)
    assert counts == {"golden": 2, "clean": 2, "noise": 4 * 3}


def test_runs_are_paired_with_plain_ddp_of_the_same_pair_and_golden_of_the_same_seed(folder: Path) -> None:
    sweep = sweep_in(folder)
    for run in sweep.selected:
        golden, ddp = sweep.golden(run), sweep.ddp(run)
        assert golden is not None and golden.seed == run.seed
        if run.faulty:
            assert ddp is not None and ddp.sample == run.sample and not ddp.trial.mitigations
            assert isinstance(gap_closed(sweep, run, "mean_model"), float | str)


def test_a_baseline_holds_every_pair_and_tells_them_apart(folder: Path, tmp_path: Path) -> None:
    sweep = sweep_in(folder)
    write(tmp_path / "b.json", make(sweep))
    baseline = read(tmp_path / "b.json")
    assert len(baseline.entries) == len(sweep.selected)
    assert len({entry.end for (name, _), entry in baseline.entries.items() if name == "noise/ddp"}) == 4
    check_fits(baseline, sweep, "again")
    with pytest.raises(ValueError, match="has no trial noise/ddp/s0-f103"):
        check_fits(baseline, sweep_in(folder, PAIRS.replace("102", "103")), "again")
    with pytest.raises(ValueError, match=r"has a trial .*0-f102, which this sweep has not"):
        check_fits(baseline, sweep_in(folder, "[[0, 100], [0, 101], [1, 100]]"), "again")


def test_the_table_counts_pairs(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(["table", str(folder / "pairs")]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines() if line.startswith("noise")]
    assert len(lines) >= 3 and all(line[2] == "4" for line in lines)


def test_a_trials_fields_are_never_lost_where_names_repeat() -> None:
    clips = [{"name": "clip_value", "limit": 0.1}, {"name": "clip_value", "limit": 1.0}]
    assert flat({"mitigations": clips[:1], "steps": 3}) == {
        "mitigations.clip_value.name": "clip_value", "mitigations.clip_value.limit": 0.1, "steps": 3,
    }  # fmt: skip
    both = flat({"mitigations": clips})
    assert sorted(value for key, value in both.items() if key.endswith("limit")) == [0.1, 1.0]
    assert flat({"parts": [{"a": 1}, {"a": 2}]}) == {"parts.0.a": 1, "parts.1.a": 2}
