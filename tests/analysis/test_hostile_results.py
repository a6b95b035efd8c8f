"""Records that somebody else wrote, or an older machine: nothing acts on the terminal, nothing leads out."""

import gc
import io
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.synthetic_results import FAULT, MITIGATIONS, RESNET, golden, spec, steps_rows, write_trial

from paftbench.analysis.export import export
from paftbench.analysis.figures import draw, draw_all
from paftbench.analysis.frame import load_results
from paftbench.cli import main as console
from paftbench.cli.main import exit_code
from paftbench.store.directory import read_record, read_result

ESCAPE = "\x1b[2J\x1b]0;owned\x07\x9b31m\u202e"
SHOWN = r"\x1b[2J\x1b]0;owned\x07\x9b31m\u202e"


def hostile(directory: Path, text: str, **changes: Any) -> Path:
    """A golden run and a trial whose every name is `text`; the directory."""
    golden(directory, [0.9], curve=[(0.1,) * 3, (0.9,) * 3])
    fault = {**FAULT, "name": text, "unit": text, "site": text}
    trial = spec(RESNET, steps=4, seed=0, faults=[fault], mitigations=MITIGATIONS["paft_sync"])
    rows = steps_rows(trial, [0.1] * 4, [None, 0.1, None, 0.1], lambda step: 1)
    labels = {"mitigation": text, f"faults.{text}.degree": 0.03, "how": text}
    given = {"outcome": "crashed", "reason": f"boom\n{text}", "curve": [(0.1,) * 3, (0.9,) * 3], "drawn": 4, **changes}
    write_trial(directory, trial, grid=text, labels=labels, rows=rows, **given)
    return directory


@pytest.mark.parametrize(
    "command", ["table", "table --by how", "table --json", "status", "report", "export --to x.csv"]
)
def test_an_escape_sequence_in_a_name_is_shown_and_never_acts(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    directory = hostile(tmp_path / "sweep", ESCAPE)
    name, *options = command.split()
    assert exit_code([name, str(directory), *options]) == 0
    out, err = capsys.readouterr()
    page = (directory / "report.html").read_text() if name == "report" else out
    assert not set("\x1b\x07\x9b\u202e") & set(out + err + page)
    assert name == "export" or command == "table --json" or SHOWN[:8] in page.replace("\n", "")


def test_an_escape_sequence_in_an_error_is_shown_and_never_acts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hostile(tmp_path / "sweep", "x", metric_name=ESCAPE, mitigation={"periods": ESCAPE})
    assert exit_code(["table", str(tmp_path / "sweep")]) == 2
    assert exit_code(["table", str(tmp_path / ESCAPE)]) == 2
    err = capsys.readouterr().err
    assert not set("\x1b\x07\x9b\u202e") & set(err) and SHOWN[:8] in err


@pytest.mark.parametrize("text", ["a$b$", "$x^{$", r"\frac{", "_hidden", "数", "a\x1bb\x00c"])
def test_a_figure_takes_any_name(text: str, tmp_path: Path) -> None:
    """Neither as a formula, nor as a warning: pytest makes errors of warnings."""
    assert draw(hostile(tmp_path, text), ["curves"], format="svg")


@pytest.mark.parametrize("command", ["report", "plot", "plot --figure all"])
def test_nothing_is_written_where_a_link_leads_out(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directory, outside = hostile(tmp_path / "sweep", "x"), tmp_path / "outside"
    outside.mkdir()
    (directory / "figures").symlink_to(outside)
    (directory / "report.html").symlink_to(outside / "report.html")
    name, *options = command.split()
    assert exit_code([name, str(directory), *options]) == 2
    place = {"report": "report.html", "plot": "figures/curves.png"}[name]
    assert f"{directory / place} is a link that leads out of {directory}" in capsys.readouterr().err
    assert list(outside.iterdir()) == []


def test_a_file_of_a_trial_that_leads_out_is_not_read(tmp_path: Path) -> None:
    directory = hostile(tmp_path / "sweep", "x")
    secret = tmp_path / "secret"
    for name in ("trial.json", "result.json", "steps.jsonl", "injections.jsonl", "log.txt"):
        copy = Path(shutil.copytree(directory, tmp_path / name))
        path = next(path for path in copy.glob("*/") if read_record(path).result.outcome == "crashed") / name  # type: ignore[union-attr]
        secret.write_text(path.read_text() if path.exists() else "secret\n")
        path.unlink(missing_ok=True)
        path.symlink_to(secret)
        with pytest.raises(ValueError, match=f"{name} is a link that leads out"):
            record = read_record(path.parent)
            _ = [*record.steps(), *record.injections(), record.log(1)]


def test_a_trial_that_leads_out_is_not_read_and_one_that_stays_inside_is(tmp_path: Path) -> None:
    directory = hostile(tmp_path / "sweep", "x")
    trial = next(directory.iterdir())
    kept = directory / ".kept"
    trial.rename(kept)
    trial.symlink_to(kept)
    assert len(load_results(directory)) == 2
    kept.rename(tmp_path / "elsewhere")
    trial.unlink()
    trial.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ValueError, match="is a link that leads out"):
        load_results(directory)


def test_arguments_that_are_no_text_do_not_break_a_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Older results hold the bytes of a directory's name in another encoding as halves of surrogate pairs."""
    old = {"argv": ["/usr/bin/paftbench", "run", "x", "--out", "r\udcc3\udca9"]}
    directory = hostile(tmp_path / "sweep", "x", environment=old, reason="no file r\udcc3\udca9")
    assert exit_code(["report", str(directory)]) == 0
    html = (directory / "report.html").read_text(encoding="utf-8")
    assert r"r\udcc3\udca9" in html
    for command in ("table", "status"):
        assert exit_code([command, str(directory)]) == 0
    export(directory, tmp_path / "x.csv")
    assert r"r\udcc3\udca9" in (tmp_path / "x.csv").read_text(encoding="utf-8")
    (_, row) = json.loads(export(directory, tmp_path / "x.json").read_text(encoding="utf-8"))
    assert row["reason"] == r"no file r\udcc3\udca9"
    assert load_results(directory)["reason"].notna().any()


def test_whole_numbers_beyond_64_bits_are_floats_in_parquet(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    import pandas as pd

    golden(tmp_path / "sweep", [0.9], tolerance=10**30)
    export(tmp_path / "sweep", tmp_path / "x.parquet")
    assert pd.read_parquet(tmp_path / "x.parquet").tolerance.tolist() == [1e30]


def test_a_closed_form_needs_the_fields_that_it_is_made_of(tmp_path: Path) -> None:
    fault = {key: value for key, value in FAULT.items() if key != "degree"}
    trial = spec(RESNET, steps=4, seed=0, faults=[fault], mitigations=[])
    rows = steps_rows(trial, [0.1] * 4, [None] * 4, lambda step: 1)
    write_trial(tmp_path, trial, grid="noise", labels={"mitigation": "ddp"}, rows=rows, drawn=1)
    assert draw(tmp_path, ["divergence"])


@pytest.mark.timeout(60)
@pytest.mark.parametrize("field", ["world_size", "steps"])
def test_a_plan_of_a_trillion_ranks_or_steps_costs_nothing(field: str, tmp_path: Path) -> None:
    trial = spec(RESNET, steps=4, seed=0, faults=[FAULT], mitigations=[{"name": "paft_dyn", "period": 2}])
    decided = {"period": 2, "period_before": 2, "sigma": None}
    rows = [{**row, "decision": decided} for row in steps_rows(trial, [0.1] * 4, [0.1] * 4, lambda step: 1)]
    for seed in range(2):
        own = {**trial, field: 10**12, "seed": seed}
        write_trial(tmp_path, own, grid="noise", labels={"mitigation": "dyn"}, rows=rows, drawn=1)
    said: list[str] = []
    assert draw_all(tmp_path, skipped=lambda name, reason: said.append(f"{name}: {reason}"))
    assert field == "steps" or "timeline: a row per rank has no room for 1000000000000 ranks, more than 256" in said


def test_a_result_is_read_by_the_same_rules_where_trials_judge_by_it(tmp_path: Path) -> None:
    golden(tmp_path, [0.9], strikes=None)
    (trial,) = tmp_path.iterdir()
    with pytest.raises(ValueError, match=r"result\.json: strikes must be a mapping, got None"):
        read_result(trial)
    (trial / "result.json").unlink()
    with pytest.raises(LookupError, match=r"is not a trial directory: it has no result\.json"):
        read_result(trial)


def test_collecting_garbage_goes_on_while_a_command_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    before, seen = gc.get_threshold(), []

    def looked(_: list[str]) -> int:
        seen.append((gc.isenabled(), gc.get_threshold()[0]))
        return 0

    monkeypatch.setattr(console, "exit_code", looked)
    with pytest.raises(SystemExit):
        console.main(["table"])
    assert seen == [(True, console.RARELY)] and gc.get_threshold() == before and gc.isenabled()


def test_output_of_another_encoding_has_what_it_cannot_show_written_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    golden(tmp_path, [0.9])
    out = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", out)
    with pytest.raises(SystemExit) as ended:
        console.main(["table", str(tmp_path)])
    assert ended.value.code == 0 and b"golden" in out.buffer.getvalue()  # type: ignore[attr-defined]


def test_a_home_that_cannot_be_written_to_leaves_stderr_clean(tmp_path: Path) -> None:
    golden(tmp_path / "sweep", [0.9], curve=[(0.1,) * 3, (0.9,) * 3])
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("XDG_", "MPLCONFIGDIR"))}
    code = f"from paftbench.cli.main import main; main(['plot', {str(tmp_path / 'sweep')!r}])"
    done = subprocess.run(
        [sys.executable, "-c", code], env={**kept, "HOME": "/dev/null/nowhere"}, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "") and done.stdout.endswith("curves.png\n")


def test_plugins_of_others_may_have_fields_of_any_kind(tmp_path: Path) -> None:
    other = {"name": "theirs", "period": None, "state": 3, "overlap": [1], "period_min": "auto"}
    trial = spec({"name": "own", "size": 3, "data": "x"}, steps=4, seed=0, faults=[FAULT], mitigations=[other])
    decided = {"period": 2, "period_before": 2, "sigma": None}
    rows = [{**row, "decision": decided} for row in steps_rows(trial, [0.1] * 4, [0.1] * 4, lambda step: 1)]
    write_trial(tmp_path, trial, grid="noise", labels={"mitigation": "theirs"}, rows=rows, drawn=1)
    assert draw(tmp_path, ["periods", "timeline", "curves"]) and len(load_results(tmp_path)) == 1


@pytest.mark.parametrize("size", [1e-320, 5e-324, 1e308])
def test_a_divergence_at_the_ends_of_what_a_float_holds_is_drawn(size: float, tmp_path: Path) -> None:
    trial = spec(RESNET, steps=4, seed=0, faults=[FAULT], mitigations=[])
    rows = steps_rows(trial, [size] * 4, [None] * 4, lambda step: 1)
    write_trial(tmp_path, trial, grid="noise", labels={"mitigation": "ddp"}, rows=rows, drawn=1)
    assert draw(tmp_path, ["divergence"])
