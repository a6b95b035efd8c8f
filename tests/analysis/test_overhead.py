"""What mitigations cost: synchronisations spread over steps, measured beside their bounds, timed trials only."""

from pathlib import Path
from typing import Any

import pytest
from matplotlib.axes import Axes
from support.synthetic_core import DYN, core, timed
from support.synthetic_results import NOISE, RESNET, SYNC, cell, spec, write_trial

from paftbench.analysis.cells import overhead
from paftbench.analysis.cost import exposed, extra_share, period, step_cost, step_seconds, sync_share
from paftbench.analysis.figures import draw
from paftbench.analysis.figures.overhead import figure, rows_of
from paftbench.analysis.panels import NothingToDraw
from paftbench.analysis.runs import Run, load
from paftbench.analysis.table import json_rows as rows

ROW = {"loss": [1.0], "lr": 0.1}  # of steps.jsonl, what nothing here looks at


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return timed(tmp_path_factory.mktemp("overhead") / "sweep")


def run_of(sweep: Path, mitigation: str, world_size: int = 2) -> Run:
    return next(
        run for run in load(sweep).selected if run.mitigation == mitigation and run.trial.world_size == world_size
    )


def one(directory: Path, rows: list[dict[str, Any]], mitigations: list[Any] | None = None) -> Run:
    """A torchrun trial with these sections of its steps; a step with `synced` synchronised."""
    trial = spec(
        RESNET,
        steps=max(1, len(rows)),
        seed=0,
        faults=[NOISE],
        mitigations=mitigations or [],
        placement="torchrun",
        procs=4,
    )
    written = [
        {
            "step": i,
            **ROW,
            "divergence": None,
            "synced": row.pop("synced", False),
            "strikes": 1,
            "seconds": row,
        }
        for i, row in enumerate(rows)
    ]
    write_trial(directory, trial, grid="noise", labels={"mitigation": "x"}, rows=written, drawn=1, step_s=0.5)
    return load(directory).selected[0]


def test_a_synchronisation_every_ten_steps_costs_a_tenth_of_it_per_step(sweep: Path) -> None:
    cost = step_cost(run_of(sweep, "paft_sync"))
    assert cost is not None and cost.sync_s == pytest.approx(0.004)
    assert cost.sections["mitigate"] == pytest.approx(0.0004, rel=0.05)
    assert cost.seconds == pytest.approx(0.0104, rel=0.01)  # 10 ms and a tenth of 4 ms; the median step would say 10 ms
    assert sum(cost.sections.values()) == pytest.approx(cost.seconds)


def test_warm_up_disturbances_and_what_is_not_the_steps_are_left_out(sweep: Path) -> None:
    cost = step_cost(run_of(sweep, "ddp"))
    assert cost is not None and cost.seconds == pytest.approx(0.010, rel=0.01) and cost.sync_s is None
    assert not {"inject", "measure", "evaluate"} & set(cost.sections)


def test_what_starts_an_overlapped_mean_counts_too(tmp_path: Path) -> None:
    steps = [{"compute": 0.01} for _ in range(21)]
    for due in (10, 20):
        steps[due - 1]["mitigate"] = 0.003
        steps[due].update(mitigate=0.001, synced=True)
    run = one(tmp_path, steps, [{**SYNC, "overlap": True}])
    assert step_seconds(run) == pytest.approx(0.01 + 2 * (0.003 + 0.001) / 20)


def test_without_a_log_of_steps_the_median_of_the_result_stands(tmp_path: Path) -> None:
    run = one(tmp_path, [])
    assert step_cost(run) is None and step_seconds(run) == 0.5


def test_overhead_is_the_ratio_of_seeds_own_runs(sweep: Path) -> None:
    loaded = load(sweep)
    ratios = {
        name: [overhead(loaded, run) for run in loaded.selected if run.mitigation == name]
        for name in ("ddp", "paft_sync", "paft_dyn", "paft_sync_overlap")
    }
    assert set(ratios["ddp"]) == {1.0}
    assert ratios["paft_sync"] == pytest.approx([1.04] * 6, rel=0.01)
    assert ratios["paft_dyn"] == pytest.approx([1.08] * 6, rel=0.01)
    assert ratios["paft_sync_overlap"] == pytest.approx([1.002] * 6, rel=0.01)
    shown = {row["labels"]["mitigation"]: row["overhead"] for row in rows(sweep)}
    assert shown["paft_sync"] == pytest.approx(1.04, rel=0.01)


def test_bounds_follow_the_design() -> None:
    assert exposed(0.4, 10, overlap=False) == pytest.approx(0.04)
    assert exposed(0.4, 10, overlap=True) == 0.0
    assert exposed(1.5, 10, overlap=True) == pytest.approx(0.2)


def test_the_bound_comes_from_blocking_runs_of_the_same_world_size(sweep: Path) -> None:
    (row,) = rows_of(load(sweep))
    bounds = {(bar.name, bar.world_size): row.bound(bar) for bar in row.bars}
    assert {bounds["ddp", size] for size in (2, 4)} == {None}
    for size in (2, 4):
        assert bounds["paft_sync", size] == pytest.approx(0.4 / 10, rel=0.05)
        assert bounds["paft_dyn", size] == pytest.approx(0.4 / 5, rel=0.05)
        assert bounds["paft_sync_overlap", size] == 0.0
    assert sync_share([run_of(sweep, "paft_sync_overlap")], 0.01) is None


def test_period_and_extra_bytes_are_counted(sweep: Path) -> None:
    assert period(run_of(sweep, "paft_sync")) == pytest.approx(41 / 4) and period(run_of(sweep, "ddp")) is None
    assert extra_share(run_of(sweep, "paft_dyn")) == pytest.approx(8 / 41)
    assert extra_share(run_of(sweep, "ddp")) == 0.0


def test_bars_have_every_seed_and_world_sizes_stand_side_by_side(sweep: Path) -> None:
    (row,) = rows_of(load(sweep))
    assert row.sizes == [2, 4] and row.title == "ResNet nano on digits: Gaussian noise"
    assert all(len(bar.ratios) == 3 for bar in row.bars) and len(row.bars) == 8
    drawn = figure(load(sweep))
    over, split, added = drawn.subfigs[0].axes
    assert [len(part.get_offsets()) for part in over.collections] == [3] * 6
    assert [label.get_text() for label in split.get_xticklabels()] == [
        "plain\nDDP", "PAFT-Sync", "PAFT-Sync\noverlap", "PAFT-Dyn",
    ]  # fmt: skip
    assert sorted(heights(over)) == pytest.approx([0.2, 0.2, 4, 4, 8, 8], abs=0.6)
    assert len(heights(added)) == 6
    assert "world size" in drawn.legends[0].get_texts()[-1].get_text()


def heights(axes: Axes) -> list[float]:
    return [patch.get_height() for patch in axes.patches]


def test_clean_runs_are_compared_with_golden_and_called_plain_ddp(tmp_path: Path) -> None:
    trial = {"placement": "torchrun", "procs": 4}
    cell(tmp_path, "golden", [0.9], faults=[], grid="golden", trial=trial, step_s=0.1)
    cell(tmp_path, "paft_sync", [0.9], faults=[], grid="clean", trial=trial, step_s=0.11)
    (row,) = rows_of(load(tmp_path))
    assert [(bar.name, bar.ratios) for bar in row.bars] == [("ddp", (1.0,)), ("paft_sync", pytest.approx((1.1,)))]
    assert row.bound(row.bars[1]) is None  # nothing says how long a synchronisation took
    assert draw(tmp_path, ["overhead"])


@pytest.mark.parametrize("trial", [{}, {"placement": "torchrun", "procs": 4, "exact": True}])
def test_what_was_not_timed_validly_is_not_drawn(tmp_path: Path, trial: dict[str, Any]) -> None:
    cell(tmp_path, "ddp", [0.9], trial=trial, step_s=0.1)
    cell(tmp_path, "paft_sync", [0.9], trial=trial, step_s=0.11)
    with pytest.raises(NothingToDraw, match="takes placement torchrun, a process per rank, exact: false"):
        draw(tmp_path, ["overhead"])


def test_degrees_are_pooled_since_they_do_not_change_what_a_step_costs(tmp_path: Path) -> None:
    for degree in (0.01, 0.1):
        for name, mitigations in (("ddp", []), ("paft_dyn", [DYN])):
            faults = [{**NOISE, "degree": degree}]
            trial = spec(RESNET, steps=5, seed=0, faults=faults, mitigations=mitigations, placement="torchrun", procs=4)
            labels = {"faults.noise.degree": degree, "mitigation": name}
            write_trial(tmp_path, trial, grid="noise", labels=labels, drawn=1, step_s=0.1)
    (row,) = rows_of(load(tmp_path))
    assert [(bar.name, len(bar.ratios)) for bar in row.bars] == [("ddp", 2), ("paft_dyn", 2)]


def test_the_bound_of_pooled_degrees_is_the_median_over_runs_that_chose_their_own_periods(tmp_path: Path) -> None:
    for degree, periods in ((0.01, (10, 10, 10)), (0.1, (2, 5, 2))):
        faults = [{**NOISE, "degree": degree}]
        for seed, every in enumerate(periods):
            for name, mitigations in (("ddp", []), ("paft_dyn", [DYN])):
                trial = spec(RESNET, steps=40, seed=seed, faults=faults, mitigations=mitigations, placement="torchrun")
                synced = [bool(mitigations) and (step + 1) % every == 0 for step in range(40)]
                logged = [
                    {"step": step, **ROW, "divergence": None, "synced": due, "strikes": 1,
                     "seconds": {"compute": 0.01, "mitigate": 0.004 if due else 0.0}}
                    for step, due in enumerate(synced)
                ]  # fmt: skip
                labels = {"faults.noise.degree": degree, "mitigation": name}
                synced_result = {"syncs": sum(synced), "periods": [], "bytes": 0}
                write_trial(
                    tmp_path, trial, grid="noise", labels=labels, drawn=1, rows=logged, mitigation=synced_result
                )
    (row,) = rows_of(load(tmp_path))
    bar = next(bar for bar in row.bars if bar.name == "paft_dyn")
    assert [period(run) for run in bar.runs] == [10, 10, 10, 2, 5, 2]
    assert row.bound(bar) == pytest.approx((0.4 / 10 + 0.4 / 5) / 2)


def test_a_virtual_sweep_has_no_such_figure(tmp_path: Path) -> None:
    core(tmp_path, seeds=1, steps=5, grids=("noise",))
    with pytest.raises(NothingToDraw):
        figure(load(tmp_path))
