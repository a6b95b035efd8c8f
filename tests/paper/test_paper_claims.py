"""Claims of the paper, and what our runs say of them."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.checkout import ROOT
from support.paper_results import judged, of, pair, sweep_of
from support.synthetic_results import NOISE, RESNET, spec, write_trial

from paftbench.analysis.runs import load
from paftbench.paper import ITEMS, render, verdicts
from paftbench.paper.claim import DEGREE, degree_text
from paftbench.paper.claims import claims_of
from paftbench.paper.measured import chosen, constant, field, values
from paftbench.records.seeds import Seed

EXPERIMENTS = ROOT / "experiments" / "paper"
AT_1E_2 = ((DEGREE, 1e-2),)


@pytest.fixture(scope="module")
def sweeps(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("paper")
    for name in ("table1", "table2", "table3", "fig2b"):
        sweep_of(directory / "small" / name, name, steps=60)
    return directory


def test_every_item_has_claims_with_unique_ids_and_the_papers_own_numbers() -> None:
    claims = [claim for name in ITEMS for claim in claims_of(name)]
    assert len({claim.id for claim in claims}) == len(claims) and all(" " not in claim.id for claim in claims)
    assert {claim.item for claim in claims} == set(ITEMS)
    known = of("table1", "table1/std_1e-2/paft-ddp")
    assert known.paper == (85.2, 60.5) and known.expect == "more" and round(known.difference or 0, 6) == 24.7
    assert of("table1", "table1/std_1e-4/paft-ddp").expect == "none"
    loss = of("fig7a", "fig7a/std_1e-4/paft-ddp")
    assert loss.paper == (5.07, 5.705) and loss.expect == "more" and round(loss.difference or 0, 3) == 0.635


def test_a_difference_within_the_spread_of_the_papers_single_runs_is_none() -> None:
    one_off = of("table2", "table2/32_workers/std_1e-4/paft_sync_H5-ddp")
    assert one_off.paper == (62.3, 64.8) and one_off.margin == 2.8 and one_off.expect == "none"
    assert of("table2", "table2/32_workers/std_1e-2/paft_sync_H5-paft_sync_H50").expect == "more"


def test_the_direction_that_the_tables_imply_for_the_period_switches_between_1e_3_and_1e_2() -> None:
    periods = [claim for claim in claims_of("table1") if claim.statistic == "period"]
    assert {dict(claim.where)[DEGREE]: claim.expect for claim in periods} == {
        1e-4: "more", 1e-3: "more", 1e-2: "less", 3e-2: "less", 1e-1: "less",
    }  # fmt: skip


def test_sentences_of_the_text_that_do_not_follow_from_table_3_are_listed_with_the_arithmetic(tmp_path: Path) -> None:
    found = [verdict for verdict in verdicts("table3", tmp_path, scale="small") if verdict.word == "wrong as printed"]
    assert [verdict.claim.paper[0] for verdict in found] == [18.9, 11.0]
    assert "0.411 / 0.333 - 1 = 23.4%" in found[0].claim.note and "19.0% of PAFT-Sync's own" in found[0].claim.note
    assert "17.9, 15.1, 11.0, 12.0 %" in found[1].claim.note


def test_degrees_that_stand_for_one_of_the_papers_are_of_the_small_scale_alone() -> None:
    small, paper = ({claim.id for claim in claims_of("fig6a", scale)} for scale in ("small", "paper"))
    assert paper < small
    claim = of("fig6a", "fig6a/std_3e-2_for_their_1e-3/paft-ddp")
    assert claim.where == ((DEGREE, 3e-2),) and claim.paper == of("fig6a", "fig6a/std_1e-3/paft-ddp").paper


def test_golden_is_the_run_that_the_faulty_one_names(sweeps: Path) -> None:
    sweep = load(sweeps / "small" / "table2")
    for size in (4, 32):
        gains = values(sweep, of("table2", f"table2/{size}_workers/std_1e-2/golden-ddp"))["rank0"]
        assert sorted(gains) == [Seed(0), Seed(1), Seed(2)] and all(20 < gain < 50 for gain in gains.values())


def test_two_trials_of_one_cell_and_seed_are_refused(tmp_path: Path) -> None:
    pair(tmp_path, [0.1, 0.1, 0.1])
    trial = spec(RESNET, steps=20, seed=0, faults=[{**NOISE, "degree": 1e-2}], mitigations=[])
    write_trial(tmp_path, trial, grid="noise", labels={DEGREE: 1e-2, "mitigation": "ddp"}, drawn=4)
    with pytest.raises(ValueError, match="has two trials of ddp, seed 0"):
        verdicts("table1", tmp_path, scale="small")


def test_the_lemmas_constant_is_measured_and_wrong_as_printed(sweeps: Path) -> None:
    verdict = judged(sweeps / "small" / "fig2b", "fig2b/std_1e-2/lemma", item="fig2b")
    assert verdict.word == "wrong as printed" and verdict.reading.mean == pytest.approx(0.75 - 1.0, abs=1e-6)
    run = next(run for run in load(sweeps / "small" / "fig2b").selected if run.mitigation == "ddp")
    assert constant(run) == pytest.approx(0.75)
    assert "0.750" in render([verdict]) and "1.25" in render([verdict])


def test_divergence_grows_with_steps_and_with_the_noise(sweeps: Path) -> None:
    found = {v.claim.statistic: v for v in verdicts("fig2b", sweeps / "small" / "fig2b", scale="small")}
    assert found["growth"].word == found["degree"].word == "same direction"
    assert found["degree"].reading.mean == pytest.approx(1.0)


def test_chosen_periods_are_those_of_the_decisions(sweeps: Path) -> None:
    directory = sweeps / "small" / "table1"
    for id, word in (("std_1e-3/period", "same direction"), ("std_1e-2/period", "same direction")):
        assert judged(directory, f"table1/{id}").word == word
    run = next(r for r in load(directory).selected if r.mitigation == "paft" and field(r.trial.fields, DEGREE) == 1e-2)
    steps, periods = chosen(run)
    rows = [row.decision.period for row in run.steps() if row.decision]
    assert periods == rows and steps[0] == 10 and set(periods) <= {2.0, 3.0, 10.0}


def test_overhead_is_over_plain_ddp_of_the_same_seed(sweeps: Path) -> None:
    directory = sweeps / "small" / "table3"
    verdict = judged(directory, "table3/4_workers/paft_sync-ddp", item="table3")
    assert verdict.word == "same direction" and 20 < (verdict.reading.mean or 0) < 30
    assert judged(directory, "table3/4_workers/paft-paft_sync", item="table3").word == "same direction"
    assert judged(directory, "table3/32_workers/paft-ddp", item="table3").word == "not run"


@pytest.mark.parametrize("name", ITEMS)
def test_claims_compare_cells_that_the_items_experiment_has(name: str) -> None:
    experiment = yaml.safe_load((EXPERIMENTS / f"{name}.yaml").read_text())
    for scale in ("small", "paper"):
        labels, degrees, sizes = _cells(experiment, scale)
        for claim in claims_of(name, scale):
            assert {claim.left, claim.right} <= {*labels, "golden", ""}, claim.id
            for field_path, value in (*claim.where, *claim.versus):
                if field_path == DEGREE:
                    assert any(degree_text(value) == degree_text(float(degree)) for degree in degrees), claim.id
                elif field_path == "world_size" and (scale == "paper" or name != "table3"):
                    assert value in sizes, claim.id


def _cells(experiment: dict[str, Any], scale: str) -> tuple[set[str], list[Any], set[int]]:
    """Mitigation labels, noise degrees and world sizes that an experiment file names at a scale."""
    change = experiment.get("scales", {}).get("paper", {}) if scale == "paper" else {}
    grids = {grid["name"]: grid for grid in experiment.get("grids", ())}
    axes: list[dict[str, Any]] = [experiment.get("axes", {}), change.get("axes", {})]
    axes += [grid.get("axes", {}) for grid in grids.values()]
    axes += [grid.get("axes", {}) for grid in change.get("grids", {}).values()]
    labels = {label for own in axes for label in own.get("mitigation", ())}
    degrees = [degree for own in axes for degree in own.get(DEGREE, ())]
    sizes = {experiment.get("base", {}).get("world_size")}
    sizes |= {grid.get("set", {}).get("world_size") for grid in grids.values()}
    sizes |= {choice["world_size"] for own in axes for choice in own.get("workers", {}).values()}
    return labels, degrees, {size for size in sizes if size is not None}


def test_claims_and_verdicts_come_without_torch_and_matplotlib(sweeps: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from paftbench.paper import render, verdicts;"
        f" render(verdicts('table1', Path({str(sweeps / 'small' / 'table1')!r}), scale='small'));"
        " assert not {'torch', 'matplotlib'} & set(sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
