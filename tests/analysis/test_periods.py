"""The periods that a mitigation chose, as they were logged."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.colors import to_hex
from support import synthetic_core
from support.synthetic_core import DYN, core
from support.synthetic_results import NOISE, RESNET, quickstart, spec, write_trial

from paftbench.analysis.figures import draw
from paftbench.analysis.figures.periods import deciding, estimates, figure
from paftbench.analysis.figures.series_style import ORANGE
from paftbench.analysis.figures.timeline import figure as timeline
from paftbench.analysis.figures.traces import trace
from paftbench.analysis.panels import NothingToDraw, panels
from paftbench.analysis.runs import load

DECISION = {
    "rule": "consensus", "layer": None, "gradient": 0.01, "spread": 0.001, "sigma": 0.03, "lr": 0.1,
    "period_before": 10, "period": 4,
}  # fmt: skip
ROW = {"loss": [1.0], "lr": 0.1}  # of steps.jsonl, what nothing here looks at


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return core(tmp_path_factory.mktemp("periods") / "sweep", seeds=3, steps=40)


def one(directory: Path, decisions: dict[int, dict[str, Any]], steps: int = 30) -> Path:
    """A sweep of one run that chose its periods at these steps."""
    trial = spec(RESNET, steps=steps, seed=0, faults=[{**NOISE, "degree": 0.03}], mitigations=[DYN])
    rows = [
        {
            "step": i,
            **ROW,
            "divergence": None,
            "strikes": 1,
            "synced": i in decisions,
            "decision": decisions.get(i),
        }
        for i in range(steps)
    ]
    write_trial(directory, trial, grid="noise", labels={"mitigation": "paft_dyn"}, rows=rows, drawn=1)
    return directory


def test_the_line_starts_at_the_first_period_and_steps_where_a_choice_was_logged(tmp_path: Path) -> None:
    one(tmp_path, {9: DECISION, 13: {**DECISION, "period_before": 4, "period": 7}})
    axes = figure(load(tmp_path)).subfigs[0].subfigs[0].axes[0]
    line = axes.lines[0]
    assert list(line.get_xdata()) == [0, 10, 14, 30] and list(line.get_ydata()) == [10, 4, 7, 7]
    assert line.get_drawstyle() == "steps-post" and to_hex(line.get_color()).upper() == ORANGE
    assert axes.collections[0].get_offsets().tolist() == [[10, 4], [14, 7]]
    bounds = {line.get_ydata()[0] for line in axes.lines[1:]}
    assert bounds == {2, 10}


def test_a_seed_that_ended_has_no_period_and_the_median_stops(tmp_path: Path) -> None:
    one(tmp_path, {9: DECISION})
    trial = spec(RESNET, steps=30, seed=1, faults=[{**NOISE, "degree": 0.03}], mitigations=[DYN])
    rows = [
        {
            "step": i,
            **ROW,
            "divergence": None,
            "synced": i == 9,
            "decision": DECISION if i == 9 else None,
        }
        for i in range(15)
    ]
    labels = {"mitigation": "paft_dyn"}
    write_trial(tmp_path, trial, grid="noise", labels=labels, rows=rows, drawn=1, outcome="crashed")
    axes = figure(load(tmp_path)).subfigs[0].subfigs[0].axes[0]
    ended, median = axes.lines[1], axes.lines[2]
    assert list(ended.get_xdata()) == [0, 10, 15]
    level = np.asarray(median.get_ydata(), dtype=float)
    assert np.isfinite(level[:16]).all() and np.isnan(level[16:]).all()


def test_the_estimated_noise_stands_below_beside_the_injected(tmp_path: Path) -> None:
    one(tmp_path, {9: DECISION, 13: {**DECISION, "sigma": None}, 17: {**DECISION, "sigma": 0.05}})
    below = figure(load(tmp_path)).subfigs[0].subfigs[0].axes[1]
    assert list(below.lines[0].get_xdata()) == [10, 18] and list(below.lines[0].get_ydata()) == [0.03, 0.05]
    assert list(below.lines[1].get_ydata()) == [0.03, 0.03] and below.get_yscale() == "log"


def test_a_rule_without_an_estimate_has_no_axes_for_it(sweep: Path) -> None:
    assert not any(estimates(deciding(panel)) for panel in panels(load(sweep)))
    assert all(len(part.axes) == 1 for row in figure(load(sweep)).subfigs for part in row.subfigs)


def test_a_row_per_grid_and_a_panel_per_degree_with_every_seed_and_the_median(sweep: Path) -> None:
    rows = figure(load(sweep)).subfigs
    assert [row.get_suptitle() for row in rows] == [
        "ResNet nano on digits: Gaussian noise",
        "ResNet nano on digits: bit flip, once at step 24 on 1 random rank",
        "ResNet nano on digits: stale shard, at 10 % of steps",
    ]
    titles = [part.axes[0].get_title(loc="left") for part in rows[0].subfigs]
    assert titles == ["std 0.001", "std 0.01", "std 0.03", "std 0.1"]
    axes = rows[0].subfigs[1].axes[0]
    seeds = [line for line in axes.lines if line.get_linewidth() == 0.6]
    (median,) = (line for line in axes.lines if line.get_linewidth() == 1.6)
    assert len(seeds) == 3
    shifts = [-0.16, 0, 0.16]
    at = 20
    heights = [
        line.get_ydata()[np.searchsorted(line.get_xdata(), at, side="right") - 1] - shift
        for line, shift in zip(seeds, shifts, strict=True)
    ]
    assert median.get_ydata()[at] == pytest.approx(np.median(heights))


def test_two_rules_are_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    both = {**synthetic_core.DEFENCES, "paft_dyn_consensus": [{**DYN, "rule": "consensus"}]}
    monkeypatch.setattr(synthetic_core, "DEFENCES", both)
    core(tmp_path, seeds=1, steps=30, grids=("noise",))
    named = [text.get_text() for text in figure(load(tmp_path)).legends[0].get_texts()]
    assert named[0].startswith("PAFT-Dyn: ") and named[1].startswith("PAFT-Dyn consensus: ")
    assert draw(tmp_path, ["periods", "timeline"])


def test_more_than_two_rules_have_a_row_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rules = {rule: [{**DYN, "rule": rule}] for rule in ("paper", "code", "consensus")}
    monkeypatch.setattr(synthetic_core, "DEFENCES", rules)
    core(tmp_path, seeds=1, steps=30, grids=("noise",))
    titles = [row.get_suptitle() for row in figure(load(tmp_path)).subfigs]
    common = "ResNet nano on digits: Gaussian noise (shown, no claim), "
    assert titles == [f"{common}code", f"{common}consensus", f"{common}paper"]


def test_the_timeline_shows_chosen_periods_below_the_syncs(tmp_path: Path) -> None:
    drawn = timeline(load(one(tmp_path, {9: DECISION, 13: {**DECISION, "period": 7}})))
    ticks, chosen, noise = drawn.axes
    assert [label.get_text() for label in ticks.get_yticklabels()][-1] == "PAFT-Dyn syncs"
    assert list(chosen.lines[0].get_ydata()) == [10, 4, 7, 7] and chosen.get_xlim() == ticks.get_xlim()
    assert noise.get_ylabel() == r"estimated $\sigma$"


def test_a_timeline_of_many_degrees_shows_the_largest_of_each_grid(sweep: Path) -> None:
    titles = [axes.get_title(loc="left").strip() for axes in timeline(load(sweep)).axes if axes.get_title(loc="left")]
    assert titles == [
        "ResNet nano on digits: Gaussian noise std 0.1",
        "ResNet nano on digits: stale shard fraction 1, at 10 % of steps",
        "ResNet nano on digits: bit flip 0.01 per element, once at step 24 on 1 random rank",
    ]


def test_decisions_are_counted_in_completed_steps(tmp_path: Path) -> None:
    (run,) = load(one(tmp_path, {9: DECISION})).selected
    ((step, decision),) = trace(run).decisions
    assert (step, decision.fields) == (10, DECISION)


def test_logs_from_before_decisions_were_kept_have_none(tmp_path: Path) -> None:
    with pytest.raises(NothingToDraw, match="a mitigation that chose its periods"):
        draw(quickstart(tmp_path, seeds=1, steps=20), ["periods"])
