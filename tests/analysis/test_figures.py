"""Figures: they are drawn from synthetic sweeps, and what must be seen in them is there."""

from dataclasses import replace
from math import inf, nan
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from support.checkout import ROOT
from support.synthetic_results import FLIPS, NOISE, RESNET, SYNC, quickstart, spec, steps_rows, write_trial
from typer.testing import CliRunner

from paftbench.analysis.figures import FIGURES, draw, narrowed
from paftbench.analysis.figures.divergence import closed_form
from paftbench.analysis.figures.overview import LIMITS
from paftbench.analysis.figures.overview import figure as overview
from paftbench.analysis.figures.saving import save
from paftbench.analysis.figures.series_style import BLACK, BLUE, PURPLE, VERMILLION, SeriesStyle, styles_of
from paftbench.analysis.figures.traces import draw_divergence, draw_seeds, on_common_steps, trace
from paftbench.analysis.panels import hardest, panels
from paftbench.analysis.runs import load
from paftbench.cli.main import exit_code


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return quickstart(tmp_path_factory.mktemp("figures") / "sweep", seeds=3, steps=40)


def one_panel(directory: Path, spread: list[Any], before: list[Any] | None = None, **trial: Any) -> Axes:
    """The divergence axes of a single made-up trial."""
    own = spec(RESNET, steps=len(spread), seed=0, faults=[{**NOISE, "degree": 0.1}], mitigations=[], **trial)
    rows = steps_rows(own, spread, before or [None] * len(spread), lambda t: 1)
    write_trial(directory, own, grid="g", labels={"mitigation": "ddp"}, rows=rows, drawn=1)
    (panel,) = panels(load(directory))
    axes = Figure().add_subplot()
    draw_divergence(axes, panel, styles_of([panel]))
    return axes


ALWAYS = ("curves", "divergence", "timeline", "overview")


@pytest.mark.parametrize("name", [*ALWAYS, "degree"])
def test_every_figure_is_drawn(sweep: Path, name: str) -> None:
    (path,) = draw(sweep, [name])
    assert path == sweep / "figures" / f"{name}.png"
    assert path.read_bytes().startswith(b"\x89PNG") and path.stat().st_size > 20_000


@pytest.mark.parametrize(("format", "start", "end"), [("pdf", b"%PDF", b"%%EOF"), ("svg", b"<?xml", b"</svg>")])
def test_vector_formats_are_written_whole(sweep: Path, format: Any, start: bytes, end: bytes) -> None:
    (path,) = draw(sweep, ["timeline"], format=format)
    content = path.read_bytes()
    assert content.startswith(start) and content.rstrip().endswith(end)
    assert not list((sweep / "figures").glob(".*"))


def test_drawing_leaves_matplotlibs_settings_alone(sweep: Path) -> None:
    before = dict(matplotlib.rcParams)
    draw(sweep, ["timeline"])
    assert dict(matplotlib.rcParams) == before


def test_the_overview_shows_a_row_per_fault_family_at_its_largest_degree(sweep: Path) -> None:
    shown = hardest(panels(load(sweep)))
    assert [(panel.grid, panel.lead.trial.faults[0].degree) for panel in shown] == [
        ("noise", 0.03), ("flips", 0.01), ("gpt2", 0.001), ("llama2", 0.001),
    ]  # fmt: skip
    assert list(shown[1].series) == ["golden", "ddp", "paft_sync", "clip_paft_sync", "averaging_limit"]


def test_the_overview_tells_its_lines_apart_and_says_what_averaging_cannot_repair(sweep: Path) -> None:
    drawn = overview(load(sweep))
    named = [text.get_text() for text in drawn.subfigs[0].legends[0].get_texts()]
    assert named == ["golden (no faults)", "plain DDP", "PAFT-Sync", "clip + PAFT-Sync", "averaging limit"]
    lines = drawn.subfigs[0].legends[0].get_lines()
    assert len({(to_hex(line.get_color()), str(line.get_linestyle())) for line in lines}) == 5
    assert len({to_hex(line.get_color()) for line in lines}) == 5
    assert drawn.get_supxlabel() == LIMITS
    curves = drawn.subfigs[1].axes[0]
    assert {VERMILLION, BLUE, PURPLE, BLACK} == {to_hex(line.get_color()).upper() for line in curves.lines}


def test_one_seed_is_shown_without_a_claim(sweep: Path) -> None:
    titles = {panel.grid: panel.title for panel in panels(load(sweep))}
    assert titles["gpt2"].endswith("(shown, no claim)") and "claim" not in titles["noise"]
    assert titles["flips"] == "ResNet nano on digits: bit flip 0.01 per element, once at step 24 on 1 random rank"
    assert "Gaussian noise std 0.001" in titles["gpt2"]


def test_every_seed_and_the_median_are_drawn(sweep: Path) -> None:
    drawn = overview(load(sweep))
    ddp = [line for line in drawn.subfigs[1].axes[0].lines if to_hex(line.get_color()).upper() == VERMILLION]
    assert len(ddp) == 4
    seeds = np.array([line.get_ydata() for line in ddp[:3]])
    assert np.array_equal(ddp[3].get_ydata(), np.median(seeds, axis=0))


def test_the_median_of_seeds_that_synchronised_at_different_steps_is_taken_step_by_step() -> None:
    lines = [
        (np.array([1.0, 2, 2, 3]), np.array([1.0, 2, 0, 1])),  # synchronised after step 2
        (np.array([1.0, 2, 3, 3]), np.array([3.0, 4, 5, 0])),  # after step 3
        (np.array([1.0, 2]), np.array([5.0, 6])),  # ended after step 2
    ]
    x, values = on_common_steps(lines)
    assert x.tolist() == [1, 1, 2, 2, 3, 3]
    assert values[0].tolist() == [1, 1, 2, 0, 1, 1] and values[1].tolist() == [3, 3, 4, 4, 5, 0]
    axes = Figure().add_subplot()
    draw_seeds(axes, lines, SeriesStyle(label="x", color=BLUE))
    assert np.array_equal(np.asarray(axes.lines[-1].get_ydata()), [3, 3, 4, 4, nan, nan], equal_nan=True)


def test_a_seed_that_left_nothing_behind_leaves_no_median_of_the_others() -> None:
    nothing = (np.zeros(0), np.zeros(0))
    axes = Figure().add_subplot()
    draw_seeds(axes, [(np.array([1.0, 2]), np.array([3.0, 4])), nothing], SeriesStyle(label="x", color=BLUE))
    thin, thick = axes.lines
    assert np.asarray(thin.get_ydata()).tolist() == [3, 4] and np.isnan(np.asarray(thick.get_ydata())).all()
    draw_seeds(axes, [nothing, nothing], SeriesStyle(label="x", color=BLUE))
    assert not len(np.asarray(axes.lines[-1].get_ydata()))


def test_a_figure_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    figure, path = Figure(), tmp_path / "x.svg"
    save(figure, path, "svg")
    before = path.read_bytes()
    figure.savefig = lambda to, **_: (Path(to).write_bytes(b"half"), 1 / 0)  # type: ignore[method-assign]
    with pytest.raises(ZeroDivisionError):
        save(figure, path, "svg")
    assert [item.name for item in tmp_path.iterdir()] == ["x.svg"] and path.read_bytes() == before


def test_every_figure_is_described() -> None:
    page = (ROOT / "docs" / "figures.md").read_text()
    assert [line.split("`")[1] for line in page.splitlines() if line.startswith("| `")] == list(FIGURES)


def test_zero_divergence_has_a_place_on_the_log_axis(tmp_path: Path) -> None:
    axes = one_panel(tmp_path, [0.5, 0.8, 0.0, 0.5], [None, None, 1.0, None])
    values = np.asarray(axes.lines[0].get_ydata())
    assert axes.get_yscale() == "log" and values.min() > 0
    labels = [label.get_text() for label in axes.get_yticklabels()]
    assert labels[0] == "0" and axes.get_yticks()[0] == values.min()


def test_the_saw_tooth_falls_vertically_at_a_synchronisation(tmp_path: Path) -> None:
    one_panel(tmp_path, [0.5, 0.8, 0.0, 0.5], [None, None, 1.0, None])
    (run,) = load(tmp_path).selected
    assert trace(run).at.tolist() == [1, 2, 3, 3, 4]
    assert trace(run).spread.tolist() == [0.5, 0.8, 1.0, 0.0, 0.5]
    assert trace(run).synced.tolist() == [3]


def test_a_divergence_that_leaves_the_axis_is_said_in_words(tmp_path: Path) -> None:
    axes = one_panel(tmp_path, [1e-3, 1e30, inf, nan])
    assert 1e30 <= axes.get_ylim()[1] < 1e32
    assert [text.get_text() for text in axes.texts] == ["plain DDP: not finite"]


@pytest.mark.parametrize("spread", [[0.0, 0.0], [None, None], [None, 0.3]])
def test_divergence_that_is_zero_or_not_measured_can_be_drawn(tmp_path: Path, spread: list[Any]) -> None:
    axes = one_panel(tmp_path, spread)
    assert axes.get_ylim()[0] < axes.get_ylim()[1]


def test_figures_stand_without_curves_golden_or_finite_numbers(tmp_path: Path) -> None:
    faults = [{**FLIPS, "degree": 0.1}]
    for seed, outcome in enumerate(["crashed", "nonfinite", None]):
        own = spec(RESNET, steps=6, seed=seed, faults=faults, mitigations=[])
        metric = (None,) * 3 if outcome == "crashed" else (nan,) * 3
        write_trial(
            tmp_path, own, grid="flips", labels={"mitigation": "ddp"}, outcome=outcome, metric=metric,
            curve=[] if outcome == "crashed" else [(0.1, 0.1, 0.1), (nan, nan, nan)],
        )  # fmt: skip
    for name in ALWAYS:
        assert draw(tmp_path, [name])


def test_golden_runs_alone_can_be_drawn(tmp_path: Path) -> None:
    own = spec(RESNET, steps=6, seed=0, faults=[], mitigations=[])
    write_trial(tmp_path, own, grid="golden", labels={"mitigation": "golden"}, curve=[(0.1,) * 3, (0.9,) * 3])
    for name in ALWAYS:
        assert draw(tmp_path, [name])


def test_one_trial_is_drawn_by_id_beside_its_golden(sweep: Path) -> None:
    everything = load(sweep)
    run = next(run for run in everything.selected if run.grid == "noise" and run.mitigation == "paft_sync")
    (path,) = draw(sweep, ["curves"], trial=run.id[:8])
    assert path.name == f"curves-{run.id}.png"
    (panel,) = panels(narrowed(everything, run.name))
    assert list(panel.series) == ["golden", "paft_sync", "averaging_limit"]
    assert all(len(runs) == 1 for runs in panel.series.values())
    with pytest.raises(LookupError, match="no trial"):
        draw(sweep, ["curves"], trial="nonesuch")


def test_a_trial_directory_is_drawn_into_itself(sweep: Path) -> None:
    run = next(run for run in load(sweep).selected if run.grid == "noise")
    assert draw(run.record.path, ["curves"]) == [run.record.path / "figures" / "curves.png"]


def test_an_unknown_figure_is_refused(sweep: Path) -> None:
    with pytest.raises(ValueError, match="did you mean 'curves'"):
        draw(sweep, ["curve"])


def test_the_closed_form_is_drawn_where_it_applies_and_nowhere_else(sweep: Path) -> None:
    loaded = load(sweep)
    for run in loaded.selected:
        applies = run.grid == "noise" and run.mitigation != "averaging_limit"
        form = closed_form(run)
        assert (form is not None) == applies
        if form is not None and run.mitigation == "ddp":
            assert np.allclose(form[1], trace(run).spread, rtol=1e-3)  # the builder leaves weight decay out
    run = next(run for run in loaded.selected if run.grid == "noise" and run.mitigation == "ddp")
    fault = replace(run.trial.faults[0], ranks=(1,))
    planned = replace(run.planned, trial=replace(run.trial, faults=(fault,)))
    assert closed_form(replace(run, record=replace(run.record, planned=planned))) is None


def test_all_draws_what_applies_and_says_why_the_others_do_not(sweep: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(["plot", str(sweep), "--figure", "all", "--format", "svg"]) == 0
    out, err = capsys.readouterr()
    assert [Path(line).stem for line in out.splitlines()] == [n for n in FIGURES if n not in ("periods", "overhead")]
    assert err.splitlines() == [
        "not drawn: periods: no finished trial has a mitigation that chose its periods",
        "not drawn: overhead: no mitigation was timed beside plain DDP:"
        " that takes placement torchrun, a process per rank, exact: false",
    ]


def test_a_figure_with_nothing_to_draw_is_one_line_and_leaves_no_file(
    sweep: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted(sweep.rglob("*"))
    assert exit_code(["plot", str(sweep), "--figure", "periods"]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1) and "no finished trial has a mitigation" in err
    assert sorted(sweep.rglob("*")) == before


def test_the_command_prints_the_paths(sweep: Path) -> None:
    import typer

    from paftbench.cli.plot import plot

    app = typer.Typer()
    app.command()(plot)
    shown = CliRunner().invoke(app, [str(sweep), "--figure", "divergence", "--format", "svg"])
    assert shown.exit_code == 0 and shown.stdout.strip() == str(sweep / "figures" / "divergence.svg")
    assert CliRunner().invoke(app, [str(sweep), "--figure", "pie"]).exit_code == 2


def test_an_overlapped_synchronisation_is_shown_too(tmp_path: Path) -> None:
    own = spec(RESNET, steps=3, seed=0, faults=[{**NOISE, "degree": 0.1}], mitigations=[{**SYNC, "overlap": True}])
    rows = steps_rows(own, [0.1, 0.2, 0.1], [None, None, 0.2], lambda t: 1)
    write_trial(tmp_path, own, grid="g", labels={"mitigation": "paft_sync"}, rows=rows, drawn=1)
    assert draw(tmp_path, ["overview", "divergence"])
