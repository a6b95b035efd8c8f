"""How mitigations are drawn: by what their plugins say, a stranger's as well as the built-in ones."""

import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.checkout import ROOT
from support.synthetic_results import RESNET, spec, write_trial

from paftbench.analysis.closed_form import closed_form
from paftbench.analysis.figures.series_style import BLACK, BLUE, GREEN, GREY, NAVY, ORANGE, SKY, SeriesStyle, styles_of
from paftbench.analysis.panels import Panel
from paftbench.analysis.runs import load
from paftbench.installed import registered
from paftbench.looks import Look, find_look
from paftbench.looks import look as look_module
from paftbench.plugins import KINDS


def styles(*beside: str, **stacks: tuple[str, ...]) -> dict[str, SeriesStyle]:
    """Of series by label, each with the names of its mitigations; `beside` them others in the sweep."""
    series: dict[str, Any] = {}
    for label, names in stacks.items():
        trial = SimpleNamespace(mitigations=tuple(SimpleNamespace(name=name) for name in names))
        series[label] = (SimpleNamespace(trial=trial),)
    others = [SimpleNamespace(trial=SimpleNamespace(mitigations=(SimpleNamespace(name=name),))) for name in beside]
    sweep: Any = SimpleNamespace(everything=others)
    return styles_of([Panel(sweep=sweep, grid="", series=series)])


def test_the_built_in_ones_look_as_in_every_figure_before() -> None:
    drawn = styles(
        averaging_limit=("regather",), clip_paft_sync=("clip_value", "paft_sync"), paft_dyn=("paft_dyn",), golden=(),
        paft_sync=("paft_sync",), ddp=(),
    )  # fmt: skip
    assert [own.label for own in drawn.values()] == [
        "golden (no faults)", "plain DDP", "PAFT-Sync", "PAFT-Dyn", "clip + PAFT-Sync", "averaging limit"
    ]  # fmt: skip
    assert (drawn["paft_sync"].color, drawn["paft_dyn"].color, drawn["clip_paft_sync"].color) == (BLUE, ORANGE, GREEN)


def test_several_of_one_plugin_are_shades_of_its_colour_in_the_order_in_which_people_count() -> None:
    drawn = styles(**{f"paft_sync_H{period}": ("paft_sync",) for period in (50, 10, 5)})
    assert [(name, own.color) for name, own in drawn.items()] == [
        ("paft_sync_H5", SKY), ("paft_sync_H10", BLUE), ("paft_sync_H50", NAVY)
    ]  # fmt: skip
    assert len({own.marker for own in drawn.values()}) == 3
    assert styles(paft_sync=("paft_sync",), paft_sync_overlap=("paft_sync",))["paft_sync"].color == BLUE


@pytest.mark.parametrize("plugin", ["paft_dyn", "paft_sync", "clip_value", "stranger"])
@pytest.mark.parametrize("count", range(1, 13))
@pytest.mark.parametrize("namesake", [False, True])
def test_any_two_of_one_plugin_can_be_told_apart_as_lines_and_as_markers(
    plugin: str, count: int, namesake: bool
) -> None:
    """`core/rules` has four of PAFT-Dyn, of which two once looked the same."""
    names = [f"{plugin}_{number}" for number in range(count - namesake)] + [plugin] * namesake
    drawn = styles(**{name: (plugin,) for name in names})
    assert len(drawn) == count
    assert len({(own.color, str(own.line)) for own in drawn.values()}) == count
    assert len({(own.color, own.marker) for own in drawn.values()}) == count


@pytest.mark.parametrize("others", [(), ("vote",), ("paft_sync", "paft_dyn", "clip_value")])
def test_a_strangers_mitigation_has_a_colour_of_its_own(others: tuple[str, ...]) -> None:
    drawn = styles(golden=(), ddp=(), stranger=("stranger",), **{name: (name,) for name in others})
    colors = [own.color for own in drawn.values()]
    assert len(set(colors)) == len(colors)
    assert drawn["stranger"].color not in (BLACK, GREY)
    assert drawn["stranger"].label == "stranger"


def test_a_stranger_keeps_its_colour_whatever_built_in_ones_stand_beside_it() -> None:
    alone = styles(stranger=("stranger",))["stranger"].color
    beside = styles(stranger=("stranger",), paft_dyn=("paft_dyn",), ddp=())["stranger"].color
    assert alone == beside


def test_a_stranger_has_one_colour_in_figures_of_all_a_sweep_and_of_a_part_of_it() -> None:
    names = ("a", "b", "c")
    every = styles(*names, **{name: (name,) for name in names})
    assert len({own.color for own in every.values()}) == 3
    assert {name: styles(*names, **{name: (name,)})[name].color for name in names} == {
        name: own.color for name, own in every.items()
    }


def test_strangers_stand_after_those_that_say_their_place() -> None:
    assert list(styles(a_first=("a_first",), paft_sync=("paft_sync",), golden=())) == ["golden", "paft_sync", "a_first"]


@pytest.fixture
def entry_point(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    def register(value: Any) -> None:
        point = SimpleNamespace(name="stranger", value="their.look:LOOK", dist=None, load=lambda: value)
        monkeypatch.setattr(look_module, "entry_points", lambda group: [point])
        look_module._registered.cache_clear()

    yield register
    look_module._registered.cache_clear()


def test_a_stranger_may_say_its_title_place_and_colour(entry_point: Any) -> None:
    entry_point(Look(title="Majority vote", order=0.5, colour="violet"))
    assert find_look("stranger").title == "Majority vote"
    assert styles(stranger=("stranger",))["stranger"].label == "Majority vote"


def test_closed_forms_ask_for_properties_not_for_names(tmp_path: Path, entry_point: Any) -> None:
    fault = {"name": "noise", "model": "stranger", "unit": "sigma", "site": "result", "degree": 1e-2, "ranks": "all",
             "parameters": "*", "schedule": "every_step"}  # fmt: skip
    rows = [{"step": step, "lr": 0.1, "loss": [1.0], "divergence": 1.0} for step in range(5)]
    mitigations = [{"name": "stranger", "period": 2, "state": "all", "overlap": False}]
    trial = spec(RESNET, steps=5, seed=0, faults=[fault], mitigations=mitigations)
    write_trial(tmp_path, trial, grid="noise", labels={"mitigation": "mine"}, drawn=1, rows=rows)
    (run,) = load(tmp_path).selected
    assert closed_form(run) is None
    entry_point(Look(title="x", std_unit="sigma"))
    assert closed_form(run) is None
    entry_point(Look(title="x", std_unit="sigma", periodic=True))
    assert closed_form(run) is not None


def test_what_is_no_look_stands_in_nobodys_way(entry_point: Any, caplog: pytest.LogCaptureFixture) -> None:
    entry_point("blue")
    assert find_look("stranger") == Look(title="stranger")
    assert "their.look:LOOK is no paftbench.looks.Look" in caplog.text


def test_a_colour_that_there_is_not_is_refused() -> None:
    with pytest.raises(ValueError, match=r"colour .* must be one of blue, orange, .*, got 'pink'"):
        Look(title="x", colour="pink")


def test_every_built_in_mitigation_says_its_look() -> None:
    for name in registered("mitigations"):
        assert find_look(name).order < find_look("stranger").order, name


def test_no_reader_and_no_planner_knows_the_name_of_a_plugin() -> None:
    names = "|".join(name for kind in KINDS for name in registered(kind))
    for room in ("analysis", "gate", "experiment", "sweep", "attachment", "store"):
        for file in (ROOT / "paftbench" / room).rglob("*.py"):
            assert not re.search(rf"[\"']({names})[\"']", file.read_text(encoding="utf-8")), file
