"""Degree against quality: every run is somewhere in the picture, and the axes say what they measure."""

from math import inf, isclose, nan
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection
from matplotlib.colors import to_hex
from support.synthetic_core import GRIDS, core
from support.synthetic_results import GPT2, NOISE, RESNET, golden, identity, quickstart, spec, write_trial

from paftbench.analysis.degrees import FIELD_NSR, Ladder, RealisedDegree, ladders
from paftbench.analysis.figures import draw
from paftbench.analysis.figures.degree import CHANCE, FIELD, figure
from paftbench.analysis.figures.edge import MARKS, OFF_SCALE
from paftbench.analysis.figures.scale import AxisScale, brief, places
from paftbench.analysis.figures.series_style import ORANGE, ROLES, VERMILLION, styled
from paftbench.analysis.panels import NothingToDraw
from paftbench.analysis.runs import load
from paftbench.analysis.table import json_rows as rows
from paftbench.looks import COLOURS


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return core(tmp_path_factory.mktemp("degrees") / "sweep", steps=20)


def ladder(sweep: Path, grid: str) -> Ladder:
    return next(found for found in ladders(load(sweep)) if found.panel.grid == grid)


def axes_of(sweep: Path) -> dict[str, Axes]:
    return {
        part.axes[0].get_xlabel().partition("(")[2].partition(")")[0]: part.axes[0]
        for part in figure(load(sweep)).subfigs
    }


def test_a_panel_per_grid_noise_first_with_degrees_as_numbers(sweep: Path) -> None:
    found = ladders(load(sweep))
    assert [own.panel.grid for own in found] == ["noise", "flips", "stale"]
    for own in found:
        assert own.degrees == tuple(sorted(GRIDS[own.panel.grid][1]))
        assert own.names == ["ddp", "paft_sync", "paft_dyn", "averaging_limit"]
        assert all(len(own.at(name, degree)) == 5 for name in own.names for degree in own.degrees)
    assert [own.unit for own in found] == ["std", "per element", "fraction"]
    assert found[2].title == "ResNet nano on digits\nstale shard, at 10 % of steps"


def test_every_seed_is_a_point_and_the_line_goes_through_the_means(sweep: Path) -> None:
    axes, own = axes_of(sweep)["std"], ladder(sweep, "noise")
    (line,) = (line for line in axes.lines if to_hex(line.get_color()).upper() == ORANGE)
    metrics = [[run.metric("worst_rank") for run in own.at("paft_dyn", degree)] for degree in own.degrees]
    assert np.allclose(np.asarray(line.get_ydata(), dtype=float), np.mean(metrics, axis=1))
    points = [tuple(point) for part in axes.collections for point in part.get_offsets()]
    assert {value for values in metrics for value in values} <= {y for _, y in points}


def test_broken_runs_stand_at_the_edge_one_mark_each_and_count_in_the_line_as_chance(sweep: Path) -> None:
    own = ladder(sweep, "flips")
    broken = [run for degree in own.degrees for run in own.at("ddp", degree) if run.outcome in ("nonfinite", "crashed")]
    axes = axes_of(sweep)["per element"]
    low, high = axes.get_ylim()
    strip = [
        part for part in axes.collections if isinstance(part, PathCollection)
        for _, y in part.get_offsets() if y < low + 0.09 * (high - low)
    ]  # fmt: skip
    assert len(broken) == 6 == len(strip)
    (line,) = (line for line in axes.lines if to_hex(line.get_color()).upper() == VERMILLION)
    found = {
        row["labels"].get("faults.flips.degree"): row for row in rows(sweep) if row["cell"].startswith("ddp degree")
    }
    means = [found[degree]["worst_rank"] for degree in own.degrees]
    assert np.asarray(line.get_ydata(), dtype=float).tolist() == means and means[-1] < 0.9 < means[0]
    labels = [text.get_text() for text in figure(load(sweep)).legends[0].get_texts()]
    assert "nonfinite run" in labels and "crashed run" in labels and "hung run" not in labels


def test_five_seeds_have_a_band_and_three_have_none(sweep: Path, tmp_path: Path) -> None:
    def labels(directory: Path) -> list[str]:
        return [text.get_text() for text in figure(load(directory)).legends[0].get_texts()]

    assert any("interval" in label for label in labels(sweep))
    assert not any("interval" in label for label in labels(core(tmp_path, seeds=3, steps=10, grids=("noise",))))


def test_the_upper_axis_has_the_nsr_of_plain_ddp_and_says_of_which_step(sweep: Path) -> None:
    assert ladder(sweep, "noise").realised == RealisedDegree(of="median step", values=(0.05, 0.5, 1.5, 5.0))
    assert ladder(sweep, "stale").realised == RealisedDegree(of="worst step", values=(0.4, 0.7, 1.0, 1.9))
    upper = axes_of(sweep)["per element"].child_axes[0]
    assert upper.get_xlabel() == "realised NSR under plain DDP, worst step"
    assert [label.get_text() for label in upper.get_xticklabels()] == ["0.02", "3", "4e12", "2e36"]


def test_an_nsr_that_was_not_measured_leaves_no_upper_axis(tmp_path: Path) -> None:
    nothing = {"median": None, "max": None}
    for degree in (1e-3, 1e-2):
        faults = [{**NOISE, "degree": degree}]
        trial = spec(RESNET, steps=5, seed=0, faults=faults, mitigations=[])
        labels = {"faults.noise.degree": degree, "mitigation": "ddp"}
        write_trial(tmp_path, trial, grid="noise", labels=labels, drawn=1, nsr=nothing)
    (own,) = ladders(load(tmp_path))
    assert own.realised is None and own.degree_of(FIELD_NSR) is None
    assert figure(load(tmp_path)).subfigs[0].axes[0].child_axes == []


def test_the_fields_worst_ratio_stands_where_the_nsr_says(sweep: Path) -> None:
    assert ladder(sweep, "noise").degree_of(0.05) == pytest.approx(1e-3)
    assert ladder(sweep, "noise").degree_of(0.5) == pytest.approx(1e-2)
    # Between 1e-5 (0.02) and 1e-4 (3), on a straight line of logarithms.
    share = np.log(0.05 / 0.02) / np.log(3 / 0.02)
    assert ladder(sweep, "flips").degree_of(0.05) == pytest.approx(1e-5 * 10**share)
    assert ladder(sweep, "noise").degree_of(0.03) == pytest.approx(1e-3 * 0.6)  # a little before the first
    assert ladder(sweep, "noise").degree_of(0.02) is None and ladder(sweep, "stale").degree_of(0.05) is None
    where = {
        unit: [line for line in axes.lines if len(set(line.get_xdata())) == 1] for unit, axes in axes_of(sweep).items()
    }
    assert len(where["std"]) == len(where["per element"]) == 1
    assert where["fraction"] == []  # the axis starts at an NSR of 0.4
    assert isclose(10 ** float(where["std"][0].get_xdata()[0]), 1e-3)
    labels = [text.get_text() for text in figure(load(sweep)).legends[0].get_texts()]
    assert FIELD in labels and "Ma et al. 2025" in FIELD


def test_chance_is_drawn_only_where_runs_come_near_it(sweep: Path, tmp_path: Path) -> None:
    dotted = {
        unit: [line for line in axes.lines if list(line.get_ydata()) == [0.1, 0.1]]
        for unit, axes in axes_of(sweep).items()
    }
    assert [len(lines) for lines in dotted.values()] == [0, 1, 0]
    assert CHANCE in [text.get_text() for text in figure(load(sweep)).legends[0].get_texts()]


def test_goldens_range_is_a_band_behind_its_mean(sweep: Path) -> None:
    axes = axes_of(sweep)["fraction"]
    goldens = [run.metric("worst_rank") for run in load(sweep).selected if run.golden]
    (line,) = (line for line in axes.lines if line.get_color() == "#000000")
    assert line.get_ydata()[0] == pytest.approx(np.mean(np.array(goldens, dtype=float)))
    box = axes.patches[0].get_extents().transformed(axes.transData.inverted())
    assert (box.y0, box.y1) == pytest.approx((min(goldens), max(goldens)))


def test_a_loss_far_above_the_untrained_models_is_marked_not_drawn_to_scale(tmp_path: Path) -> None:
    best = spec(RESNET, steps=5, seed=0, faults=[], mitigations=[])
    loss: dict[str, Any] = {"metric_name": "val_loss", "chance": 5.5}
    write_trial(tmp_path, best, grid="golden", labels={"mitigation": "golden"}, metric=(2.2,) * 3, **loss)
    for degree, value in ((1e-3, 2.3), (1e-2, 1e9), (1e-1, inf)):
        trial = spec(RESNET, steps=5, seed=0, faults=[{**NOISE, "degree": degree}], mitigations=[])
        labels = {"faults.noise.degree": degree, "mitigation": "ddp"}
        write_trial(
            tmp_path, trial, grid="noise", labels=labels, metric=(value,) * 3, golden_id=identity(best), drawn=1, **loss
        )
    (own,) = ladders(load(tmp_path))
    scale = AxisScale.of(own)
    assert scale.worse == "top" and scale.high < 6 and not scale.shows(1e9)
    drawn = figure(load(tmp_path))
    labels_shown = [text.get_text() for text in drawn.legends[0].get_texts()]
    assert f"{OFF_SCALE} run" in labels_shown and "nonfinite run" in labels_shown
    axes = drawn.subfigs[0].axes[0]
    assert axes.get_ylim()[1] > scale.high  # room for the marks above


def test_workloads_are_rows(tmp_path: Path) -> None:
    core(tmp_path, seeds=1, steps=10, workload=GPT2, grids=("noise", "stale"))
    core(tmp_path, seeds=1, steps=10, grids=("noise", "stale"))
    titles = [part.get_suptitle().splitlines()[0] for part in figure(load(tmp_path)).subfigs]
    assert titles == ["ResNet nano on digits (shown, no claim)"] * 2 + ["GPT-2 nano on pydoc (shown, no claim)"] * 2


def test_degree_zero_has_a_place_before_the_smallest() -> None:
    at = places((0.0, 1e-3, 1e-2, 1e-1))
    assert [at[degree] for degree in (1e-3, 1e-1)] == pytest.approx([-3, -1]) and at[0.0] == pytest.approx(-4)
    assert places((0.0,)) == {0.0: -1.0} and places((0.5,)) == {0.5: pytest.approx(np.log10(0.5))}


def test_short_numbers_keep_their_meaning() -> None:
    assert [brief(value) for value in (0.0, 1e-3, 3e-5, 0.5, 1.0, 1234.0, 2.4e36, 9.96e-7, nan, inf)] == [
        "0", "0.001", "3e-5", "0.5", "1", "1230", "2e36", "1e-6", "-", "inf",
    ]  # fmt: skip


def test_runs_of_other_fields_with_the_same_labels_are_lines_of_their_own(sweep: Path, tmp_path: Path) -> None:
    for steps in (5, 10):
        for degree in (1e-3, 1e-2):
            trial = spec(RESNET, steps=steps, seed=0, faults=[{**NOISE, "degree": degree}], mitigations=[])
            write_trial(
                tmp_path, trial, grid="noise", labels={"faults.noise.degree": degree, "mitigation": "ddp"}, drawn=1
            )
    (own,) = ladders(load(tmp_path))
    assert sorted(own.names) == ["ddp steps=10", "ddp steps=5"]


def test_a_sweep_without_a_degree_axis_has_no_such_figure(tmp_path: Path) -> None:
    golden(tmp_path, [0.9])
    with pytest.raises(NothingToDraw, match=r"no axis faults\.NAME\.degree"):
        draw(tmp_path, ["degree"])
    assert not (tmp_path / "figures").exists()


def test_grids_without_a_degree_axis_are_left_out(tmp_path: Path) -> None:
    assert [own.panel.grid for own in ladders(load(quickstart(tmp_path, seeds=1, steps=20)))] == ["noise"]


def test_the_axis_with_the_most_degrees_is_the_one_that_rises(tmp_path: Path) -> None:
    for degree in (1e-3, 1e-2, 1e-1):
        hum = {**NOISE, "name": "hum", "degree": 1e-4}
        trial = spec(RESNET, steps=5, seed=0, faults=[hum, {**NOISE, "degree": degree}], mitigations=[])
        labels = {"faults.hum.degree": 1e-4, "faults.noise.degree": degree, "mitigation": "ddp"}
        write_trial(tmp_path, trial, grid="noise", labels=labels, drawn=1)
    (own,) = ladders(load(tmp_path))
    assert own.axis == "faults.noise.degree" and own.degrees == (1e-3, 1e-2, 1e-1)
    assert own.title.endswith("Gaussian noise std 0.0001 + Gaussian noise")


def test_one_trial_alone_can_be_drawn(sweep: Path) -> None:
    run = next(run for run in load(sweep).selected if run.grid == "noise")
    (path,) = draw(sweep, ["degree"], trial=run.id)
    assert path.stat().st_size > 10_000


def test_no_mark_of_an_outcome_is_a_mitigations() -> None:
    taken = {style.marker for style in ROLES.values()}
    taken |= {styled("", colour, shade).marker for colour in COLOURS for shade in range(3)}
    assert not taken & set(MARKS.values())
