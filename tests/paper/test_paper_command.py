"""`paftbench paper`: items and groups, what runs and what is copied, figures and verdicts, plans, mistakes."""

from pathlib import Path
from typing import Any

import pytest

from paftbench.cli.main import exit_code
from paftbench.cli.paper import chosen, refuse_mixture
from paftbench.experiment.file import load
from paftbench.experiment.needs import TFLOPS, absent_data, checkpoint_bytes, disk_bytes, needs_of, operations
from paftbench.experiment.plan import plan
from paftbench.paper import ITEMS
from paftbench.store.directory import read_json, read_results, write_planned

# Seconds in all: a quadratic in place of the models. The design, axes and labels are the items' own.
TINY = ["steps=4", "seeds=1", "eval_every=2", "workload={name: quadratic, dim: 20}"]


def paper(*arguments: Any) -> int:
    return exit_code(["paper", *(str(argument) for argument in arguments)])


def table(text: str, first: str) -> list[list[str]]:
    """The rows of the table whose heading starts with `first`, split at two blanks or more."""
    lines = text.splitlines()
    start = next(i for i, line in enumerate(lines) if line.split()[:2] == first.split())
    rows = []
    for line in lines[start:]:
        if not line:
            break
        rows.append([cell.strip() for cell in line.split("  ") if cell.strip()])
    return rows


def starts(root: Path) -> dict[str, int]:
    """When each trial's result was written, by its path."""
    return {str(path.relative_to(root)): path.stat().st_mtime_ns for path in root.rglob("result.json")}


def test_items_come_in_the_papers_order_and_groups_are_spelt_out() -> None:
    assert chosen([]) == chosen(["all"]) == list(ITEMS)
    assert chosen(["fig5", "table1"]) == ["table1", "fig5a", "fig5b", "fig5c"]
    assert chosen(["tables"]) == ["table1", "table2", "table3"]
    assert chosen(["figures"]) == [item for item in ITEMS if item.startswith("fig")]
    assert chosen(["fig9a", "fig9", "fig2b"]) == ["fig2b", "fig9a", "fig9b"]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["fig5d"], "the paper has no item 'fig5d'; did you mean 'fig5'?"),
        (["tabel1"], "the paper has no item 'tabel1'; did you mean 'table1'?"),
        (["fig5a", "--scale", "large"], "'large' is not one of"),
        (["fig5a", "mitigation=paft_dyn"], "axis mitigation has no label 'paft_dyn'; did you mean 'paft'?"),
        (["fig5a", "-k", "nothing"], "-k 'nothing' matches no trial of fig5a"),
        (["fig5a", "step=3", "-n"], "unknown key 'step'; did you mean 'steps'?"),
        (["fig5a", "--scale", "paper"], "get it with `paftbench data cifar10`"),
        (["fig5a", "--scale", "paper", "-n", "--tflops", "0"], "--tflops (TFLOP/s that a GPU sustains) must be > 0"),
        (["table3", "--scale", "paper", "workload.data=digits"], "table3: it has trials of more than one machine"),
    ],
)
def test_mistakes_are_one_line_and_nothing_runs(
    arguments: list[str],
    expected: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("PAFTBENCH_DATA", str(tmp_path / "data"))
    assert paper(*arguments, "--out", tmp_path / "out") == 2
    out, err = capsys.readouterr()
    errors = [line for line in err.splitlines() if not line.startswith("paftbench: warning: ")]
    assert out == "" and len(errors) == 1 and errors[0].startswith("paftbench: error: ") and expected in errors[0]
    assert not (tmp_path / "out").exists()


def test_items_run_once_share_their_trials_and_are_drawn_and_judged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["fig5a", "fig2a", *TINY, "faults.noise.degree=1e-2,0.1", "-j", 2, "--out", tmp_path]
    assert paper(*given) == 0
    root = tmp_path / "paper"
    out, err = capsys.readouterr()
    # The golden run and plain DDP are in both, PAFT in figure 5a alone.
    assert "fig2a:\n3 trials, 0 already done" in err and "3 trials are those of other items, copied" in err
    assert len(read_results(root / "fig2a")) == 3 and len(read_results(root / "fig5a")) == 5
    assert {record.planned.experiment for record in read_results(root / "fig5a")} == {"paper/fig5a"}
    for item in ("fig2a", "fig5a"):
        directory = root / item
        assert (directory / "figures" / f"{item}.png").read_bytes().startswith(b"\x89PNG")
        assert str(directory / "figures" / f"{item}.png") in out
        text, kept = (directory / "verdicts.txt").read_text(), read_json(directory / "verdicts.json")
        assert text.rstrip() in out and "not enough seeds" in text
        assert (kept["schema"], kept["item"], kept["scale"]) == (1, item, "small")
        assert {verdict["claim"]["item"] for verdict in kept["verdicts"]} == {item}
        assert {verdict["word"] for verdict in kept["verdicts"]} == {"not enough seeds", "not run"}
    before = starts(root)
    assert paper(*given) == 0
    assert starts(root) == before
    assert "5 trials, 5 already done" in capsys.readouterr().err


def test_force_runs_a_trial_of_several_items_once_and_again(tmp_path: Path) -> None:
    given = ["fig2a", "fig2b", *TINY, "faults.noise.degree=0.1", "--out", tmp_path]
    assert paper(*given) == 0
    root = tmp_path / "paper"
    before = {path: read_json(root / path) for path in starts(root)}
    assert len(before) == 4 and paper(*given, "--force") == 0
    after = {path: read_json(root / path) for path in starts(root)}
    for path, result in after.items():
        # New times in both: the first item's ran again, the second's are copies of those.
        assert result["time"] != before[path]["time"]
        assert result["time"] == after[path.replace("fig2b", "fig2a")]["time"]


def test_a_trial_in_error_is_the_exit_code_and_the_rest_is_drawn(tmp_path: Path) -> None:
    plugin = tmp_path / "failing.py"
    plugin.write_text(FAILING)
    given = ["fig2a", "steps=4", "seeds=1", "workload={name: failing}", "faults.noise.degree=0.1"]
    assert paper(*given, "--plugin", plugin, "--out", tmp_path) == 1
    assert (tmp_path / "paper" / "fig2a" / "verdicts.txt").is_file()


FAILING = '''
from dataclasses import dataclass
from paftbench.workloads.quadratic import Quadratic

@dataclass(frozen=True, kw_only=True)
class Failing(Quadratic):
    """Fails at its first step."""
    name = "failing"

    def loss(self, model, batch):
        raise RuntimeError("no loss")
'''


def test_scales_do_not_mix(tmp_path: Path) -> None:
    small = ["fig2a", *TINY, "faults.noise.degree=0.1", "--out", tmp_path]
    assert paper(*small) == 0 and paper(*small, "epochs=null", "--scale", "paper") == 0
    assert len(read_results(tmp_path / "paper" / "fig2a")) == 2
    records = read_results(tmp_path / "paper" / "scale-paper" / "fig2a")
    assert len(records) == 2 and {record.planned.trial.batch_per_rank for record in records} == {128}


def test_variants_of_an_item_do_not_mix_but_parts_of_it_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    variant = ["fig2a", *TINY, "--out", tmp_path]
    assert paper(*variant, "faults.noise.degree=0.1") == 0
    assert paper(*variant, "-k", "degree=0.01") == 0 and len(read_results(tmp_path / "paper" / "fig2a")) == 3
    capsys.readouterr()
    assert paper("fig5a", "fig2a", "--out", tmp_path) == 2
    out, err = capsys.readouterr()
    assert out == "" and "fig2a holds trials of other settings than these; give variants an --out" in err
    assert not (tmp_path / "paper" / "fig5a").exists()


def test_a_part_of_an_item_and_more_seeds_may_run_before_and_after_the_whole(tmp_path: Path) -> None:
    whole = plan(load("paper/fig2a"))
    seeds = plan(load("paper/fig2a"), ["seeds=7"])
    part = plan(load("paper/fig2a"), ["seeds=1", "faults.noise.degree=0.1"])
    other = plan(load("paper/fig2a"), ["steps=9"])
    for items in (whole, seeds, part):
        directory = tmp_path / str(len(items))
        for item in items:
            write_planned(directory / item.id, item)
        for later in (whole, seeds, part):
            refuse_mixture("fig2a", "small", directory, later)
        with pytest.raises(ValueError, match="other settings"):
            refuse_mixture("fig2a", "small", directory, other)
    with pytest.raises(ValueError, match="other settings"):
        refuse_mixture("fig2a", "paper", tmp_path / str(len(whole)), part)


def test_a_plan_lists_trials_and_what_is_left_for_each_item_and_writes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert paper("fig2", "-n", "--out", tmp_path / "out") == 0
    out = capsys.readouterr().out
    listed = table(out, "item id")
    assert len(listed) == 1 + 60 and len(listed[1][1]) == 16
    assert [row[3] for row in listed[1:]] == ["missing"] * 30 + ["shared"] * 30
    assert table(out, "item trials")[1:3] == [
        ["fig2a", "30", "0", "0", "30", "-", load("paper/fig2a").cost],
        ["fig2b", "30", "0", "30", "0", "0 s", load("paper/fig2b").cost],
    ]
    assert "30 trials to run" in out and not (tmp_path / "out").exists()


def test_a_plan_knows_what_has_run_and_how_long_the_rest_takes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["--out", tmp_path, *TINY]
    assert paper("fig2a", *given, "faults.noise.degree=0.1") == 0
    capsys.readouterr()
    assert paper("fig2a", "fig5a", *given, "-n") == 0
    (_, first, second, total) = table(capsys.readouterr().out, "item trials")
    assert first[:5] == ["fig2a", "6", "2", "0", "4"] and first[5].endswith("s")
    # The golden run is there, three degrees of plain DDP are figure 2a's, PAFT's four are left.
    assert second[:5] == ["fig5a", "9", "0", "5", "4"]
    assert total[0].startswith("8 trials to run, about ")


def test_a_plan_at_the_papers_scale_needs_no_data_and_says_what_it_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PAFTBENCH_DATA", str(tmp_path))
    assert paper("fig5a", "fig7a", "--scale", "paper", "-n") == 0
    out = capsys.readouterr().out
    assert {row[1] for row in table(out, "item id")[1:]} == {"-"}
    rows = {row[0]: row for row in table(out, "item trials")}
    assert rows["fig5a"][1:5] == ["21", "0", "0", "21"] and rows["all"][1:3] == ["42", "42"]
    assert float(rows["fig7a"][5]) == pytest.approx(196, rel=0.01)
    assert "needed: cifar10, 60,000 colour 32x32 images, 180 MB: `paftbench data cifar10`" in out
    assert (
        "needed: tokens, 197 million token ids for one pass, 393 MB as uint16: `paftbench data tokens path=FILE`" in out
    )
    assert "at 5 TFLOP/s, what Table 3 of the paper implies" in out
    assert paper("fig5a", "--scale", "paper", "-n", "--tflops", "50") == 0
    faster = {row[0]: row for row in table(capsys.readouterr().out, "item trials")}
    assert float(faster["fig5a"][5]) == pytest.approx(float(rows["fig5a"][5]) / 10, rel=0.01)


def test_the_assumed_speed_is_what_table_3_implies() -> None:
    trial = plan(load("paper/table3", "paper"), data_needed=False)[0].trial
    iteration = 3 * 2 * trial.workload.cost().multiply_adds * trial.batch_per_rank
    assert iteration / 0.201 / 1e12 == pytest.approx(TFLOPS, rel=0.01)


def test_needs_add_up_over_steps_ranks_batch_and_evaluations() -> None:
    narrowed = ["seeds=1", "golden=false", "faults.noise.degree=0.1"]
    (item,) = plan(load("paper/fig2a", "paper"), narrowed, data_needed=False)
    trial, cost = item.trial, item.trial.workload.cost()
    steps = -(-111 * 50_000 // 512)
    assert trial.steps == steps
    passes = 3 * steps * 512 + (1 + -(-steps // 196)) * 5 * 2000
    assert operations(trial) == 2 * cost.multiply_adds * passes
    assert needs_of([item, item]).gpu_hours == pytest.approx(2 * operations(trial) / (TFLOPS * 1e12) / 3600)
    assert checkpoint_bytes(trial) == 4 * 2 * 4 * 11_173_962
    assert absent_data([item]) == ["needed: cifar10, 60,000 colour 32x32 images, 180 MB: `paftbench data cifar10`"]


def test_disk_is_estimated_as_what_a_trial_really_takes(tmp_path: Path) -> None:
    # Rows of 4 ranks that are measured and struck at every step, as in the paper's items.
    given = ["fig2a", "seeds=1", "faults.noise.degree=0.1", "steps=60", "workload={name: quadratic, dim: 20}"]
    assert paper(*given, "--out", tmp_path) == 0
    for record in read_results(tmp_path / "paper" / "fig2a"):
        real = sum(path.stat().st_size for path in record.path.iterdir())
        (trial,) = {item.trial for item in plan(load("paper/fig2a"), given[1:]) if item.id == record.id}
        assert disk_bytes(trial) == pytest.approx(real, rel=0.25)


def test_workloads_that_do_not_say_what_they_cost_are_counted_apart(capsys: pytest.CaptureFixture[str]) -> None:
    given = ["epochs=null", "steps=4", "workload={name: quadratic, dim: 20}"]
    assert paper("fig2a", "--scale", "paper", "-n", *given) == 0
    out = capsys.readouterr().out
    assert {row[0]: row for row in table(out, "item trials")}["fig2a"][5] == "-"
    assert "15 trials are of workloads that do not say what they cost" in out and "needed:" not in out
