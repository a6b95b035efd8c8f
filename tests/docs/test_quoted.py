"""What pages say of committed results is what the data beside them give."""

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from support.checkout import ROOT

REFERENCE = ROOT / "results" / "reference"


@pytest.fixture(scope="module")
def script() -> Iterator[ModuleType]:
    sys.path.insert(0, str(ROOT / "tools"))
    import quoted

    yield quoted
    sys.path.remove(str(ROOT / "tools"))


def lines(name: str, *, grid: str, mitigation: str, degree: float) -> list[Any]:
    """Results of a cell, read without any code of ours."""
    found = all_of(name)
    return [
        result for result in found
        if result["grid"] == grid and result["labels"]["mitigation"] == mitigation
        and degree in result["labels"].values()
    ]  # fmt: skip


def test_the_committed_page_is_what_the_data_give(script: ModuleType) -> None:
    """A sentence that no longer holds is named; new data with old words need `python tools/quoted.py`."""
    assert script.PAGE.read_text(encoding="utf-8") == script.render()


def test_the_page_names_the_folders_of_an_earlier_version(script: ModuleType) -> None:
    sentence = (
        script.PAGE.read_text(encoding="utf-8").partition("*Of an earlier version*:")[2].partition("made before")[0]
    )
    abouts = {path.parent: json.loads(path.read_text()) for path in REFERENCE.rglob("about.json")}
    old = [path for path, about in abouts.items() if "processor" not in about["environment"]]
    assert sorted(re.findall("`(.*?)`", sentence)) == sorted(str(path.relative_to(REFERENCE)) for path in old)


def test_a_sentence_that_the_data_do_not_hold_stops_the_page_and_is_named(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    template = tmp_path / "page.md.in"
    template.write_text(
        'Golden {{ run("quickstart", "noise", "ddp", 0.03).mean | d }}{{ claim("it is masked", false) }}'
    )
    monkeypatch.setattr(script, "TEMPLATE", template)
    with pytest.raises(script.Untrue, match=r"^no longer true of the data: it is masked$"):
        script.render()


def test_every_conclusion_of_the_page_has_a_condition(script: ModuleType) -> None:
    assert script.TEMPLATE.read_text(encoding="utf-8").count("claim(") > 30
    with pytest.raises(LookupError, match="quickstart has 0 cells noise paft_dyn"):
        script.run("quickstart", "noise", "paft_dyn", 0.03)


def test_a_number_in_every_seed_is_the_worst_seeds(script: ModuleType) -> None:
    own = lines("core/resnet", grid="flips", mitigation="clip_paft_sync", degree=0.01)
    worst = min(result["metric"]["worst_rank"] for result in own)
    assert script.run("core/resnet", "flips", "clip_paft_sync", 0.01).least == worst
    assert f"Clip + PAFT-Sync holds {script.decimals(worst)} or better in every seed" in flat(script)


def test_gaps_are_listed_one_by_one_and_not_as_a_range_of_some(script: ModuleType) -> None:
    """5, 8, 11 and 9 % were once "5 to 9 %"."""
    gaps = []
    for degree in (0.00013, 0.001, 0.003, 0.01):
        of = {m: lines("core/llama2", grid="noise", mitigation=m, degree=degree) for m in ("ddp", "paft_sync")}
        ends = {m: {r["seeds"]["seed"]: r["metric"]["worst_rank"] for r in own} for m, own in of.items()}
        golden = {r["seeds"]["seed"]: r["metric"]["worst_rank"] for r in all_of("core/llama2") if r["grid"] == "golden"}
        each = [(ends["paft_sync"][s] - ends["ddp"][s]) / (golden[s] - ends["ddp"][s]) for s in golden]
        gaps.append(100 * sum(each) / len(each))
    assert f"and {script.listed(gaps)} % (LLaMA-2, its smallest std first)" in flat(script)


def test_periods_that_are_not_2_are_counted(script: ModuleType) -> None:
    periods = script.choices("core/llama2", "noise/paft_dyn/", first=1).of("period")
    assert f"{periods.count(2.0)} of the {len(periods)} periods chosen from then on are 2" in flat(script)


def test_overheads_are_those_of_the_kept_table(script: ModuleType) -> None:
    table = (REFERENCE / "core" / "overhead" / "table.txt").read_text()
    (shown,) = re.findall(r"gpt2 +paft_dyn .* ([\d.]+)x$", table, re.M)
    assert script.overhead("gpt2", "paft_dyn") == float(shown)
    assert f"GPT-2 nano {script.overhead('gpt2', 'paft_sync'):.2f}, {shown}, " in flat(script)


@pytest.mark.parametrize("name", ["gpt2", "llama2"])
def test_the_manual_says_how_often_sigma_is_right_under_adam_and_how_wrong_at_worst(
    script: ModuleType, name: str
) -> None:
    text = " ".join((ROOT / "docs" / "mitigations.md").read_text(encoding="utf-8").split())
    said = {
        "gpt2": r"([\d.]+) % of the estimates of `core/gpt2` are within 5 % \(the worst off by a factor of ([\d.]+)\)",
        "llama2": r"([\d.]+) % of those of `core/llama2` \(([\d.]+)\)",
    }
    ((share, worst),) = re.findall(said[name], text)
    found = script.choices(f"core/{name}", "noise/paft_dyn/", first=6)
    assert f"{100 * (1 - found.outside / len(found.ratios)):.1f}" == share
    assert f"{found.worst:.2f}" == worst


def all_of(name: str) -> list[Any]:
    return [json.loads(line)["result"] for line in (REFERENCE / name / "trials.jsonl").read_text().splitlines()]


def flat(script: ModuleType) -> str:
    return " ".join(script.PAGE.read_text(encoding="utf-8").split())
