"""Figures and tables of the paper beside ours: drawn from made-up sweeps of every item, at both scales."""

from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure
from support.paper_results import pair, sweep_of
from support.synthetic_results import RESNET, identity, spec, write_trial

from paftbench.analysis.figures.series_style import BLUE, SeriesStyle
from paftbench.analysis.runs import load
from paftbench.paper import ITEMS, draw, render, verdicts
from paftbench.paper.items import item_of


@pytest.fixture(scope="module")
def sweeps(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("paper")
    for name in ITEMS:
        for scale in ("small", "paper"):
            sweep_of(directory / scale / name, name, scale=scale, steps=60)
    return directory


@pytest.mark.parametrize("scale", ["small", "paper"])
@pytest.mark.parametrize("name", ITEMS)
def test_every_item_is_drawn_and_told_at_both_scales(sweeps: Path, name: str, scale: str) -> None:
    directory = sweeps / scale / name
    path, *texts = draw(name, directory, scale=scale)
    assert path == directory / "figures" / f"{name}.png"
    assert path.read_bytes().startswith(b"\x89PNG") and path.stat().st_size > 30_000
    assert [text.name for text in texts] == ([f"{name}.txt"] if item_of(name).table else [])
    found = verdicts(name, directory, scale=scale)
    cost = item_of(name).kind == "overhead"
    assert all(verdict.word != "not run" or cost for verdict in found)
    words = {verdict.word for verdict in found} - {"not run", "wrong as printed", "no effect", "opposite", "undecided"}
    assert words <= ({"same direction"} if scale == "small" else {"reproduced", "not reproduced"})
    text = render(found)
    assert max(map(len, text.splitlines())) <= 120 and "openreview.net" in text


def test_what_must_be_seen_in_a_figure_is_in_it(sweeps: Path) -> None:
    from paftbench.paper.figures.curves import figure

    drawn = figure(item_of("fig5a"), load(sweeps / "small" / "fig5a"), "small")
    ours, theirs, periods = drawn.axes
    assert ours.get_title(loc="left").startswith("Ours, scale small\nResNet nano on digits, 4 ranks")
    assert theirs.get_title(loc="left") == "Paper, 1 seed\nResNet-18, CIFAR-10, 4 workers"
    assert len(theirs.lines) == 7 and theirs.lines[-1].get_ydata()[-1] == 85.15
    assert len(ours.lines) == 9 * 4  # golden, and both methods at 4 degrees: 3 seeds and their mean
    shared = {line.get_color() for line in theirs.lines} & {line.get_color() for line in ours.lines}
    assert len(shared) == 7 and ours.get_ylim() == theirs.get_ylim() == (0, 100)
    assert periods.get_ylabel() == "chosen period H"
    text = drawn.get_supxlabel()
    assert "openreview.net" in text and "sigma squared is the std" in text


def test_seeds_that_ended_early_are_not_left_out_of_the_mean() -> None:
    from paftbench.paper.figures.curves import draw_mean

    steps = np.arange(1.0, 5)
    lines = [(steps, np.full(4, 1.0)), (steps, np.full(4, 3.0)), (steps[:2], np.full(2, 8.0))]
    axes = Figure().add_subplot()
    draw_mean(axes, lines, SeriesStyle(label="x", color=BLUE))
    *thin, mean = axes.lines
    x, y = (np.asarray(data, dtype=float) for data in mean.get_data())
    assert len(thin) == 3 and set(y[x <= 2]) == {4.0} and np.isnan(y[x > 2]).all() and {3.0, 4.0} <= set(x)
    draw_mean(axes, [*lines, (np.zeros(0), np.zeros(0))], SeriesStyle(label="x", color=BLUE))
    assert np.isnan(np.asarray(axes.lines[-1].get_ydata(), dtype=float)).all()


def test_a_table_is_also_text_with_ours_above_theirs(sweeps: Path) -> None:
    _, text = draw("table2", sweeps / "small" / "table2", scale="small")
    content = text.read_text()
    assert "4 workers" in content and "32 workers" in content and "std 3e-2" in content
    assert max(map(len, content.splitlines())) <= 120
    paper = [line.split() for line in content.splitlines() if "paper" in line]
    assert paper[1] == ["paper", "74.9", "68.8", "11.3", "-", "1.3"]


def test_unfinished_sweeps_are_drawn_as_far_as_they_are(tmp_path: Path) -> None:
    pair(tmp_path, [0.1])
    for name in ("table1", "fig5a", "fig6a", "fig2a", "fig2b", "fig9a", "optimizer_state"):
        assert draw(name, tmp_path, scale="small", format="svg")[0].is_file()


def test_bad_input_is_refused_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="the paper has no 'table9'; did you mean 'table"):
        draw("table9", tmp_path, scale="small")
    with pytest.raises(ValueError, match="scale must be one of small, paper, got 'huge'"):
        verdicts("table1", tmp_path, scale="huge")
    with pytest.raises(ValueError, match="format must be one of png, pdf, svg, got 'gif'"):
        draw("table1", tmp_path, scale="small", format="gif")
    with pytest.raises(LookupError, match="holds no trials"):
        draw("table1", tmp_path, scale="small")
    trial = spec(RESNET, steps=10, seed=0, faults=[], mitigations=[])
    write_trial(tmp_path, trial, grid="golden", labels={"mitigation": "golden"}, schema=2)
    assert (tmp_path / identity(trial)).is_dir()
    with pytest.raises(ValueError, match="has schema 2"):
        verdicts("table1", tmp_path, scale="small")
