"""Commands that look, on directories that are not as they should be: one line, exit 2, nothing changed."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.synthetic_core import core

from paftbench.cli.main import exit_code
from paftbench.store.files import write_json

LOOKING: dict[str, list[str]] = {
    "table": ["table", "DIR"],
    "table --json": ["table", "DIR", "--json"],
    "table --by": ["table", "DIR", "--by", "mitigation"],
    "table --injections": ["table", "DIR", "--injections"],
    "plot": ["plot", "DIR"],
    "plot all": ["plot", "DIR", "--figure", "all"],
    "status": ["status", "DIR"],
    "status --follow": ["status", "DIR", "--follow"],
    "report": ["report", "DIR"],
    "export": ["export", "DIR", "--to", "OUT/trials.csv"],
    "export --steps": ["export", "DIR", "--to", "OUT/steps.json", "--steps"],
}
ALL = sorted(LOOKING)
READ_LOGS = ("plot", "plot all", "report", "export --steps")
QUICK = ("table", "table --json", "plot", "export", "export --steps")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return core(tmp_path_factory.mktemp("whole") / "sweep", seeds=1, steps=12, grids=("noise",))


@pytest.fixture
def sweep(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "sweep"))


def trials(sweep: Path) -> list[Path]:
    return sorted(path.parent for path in sweep.glob("*/trial.json"))


def content(directory: Path) -> dict[str, bytes | None]:
    paths = sorted(directory.rglob("*"))
    return {str(path.relative_to(directory)): path.read_bytes() if path.is_file() else None for path in paths}


def look(command: str, directory: Path) -> int:
    out = directory.parent / "out"
    out.mkdir(exist_ok=True)
    return exit_code([part.replace("DIR", str(directory)).replace("OUT", str(out)) for part in LOOKING[command]])


def refused(command: str, directory: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """The one line that a command says; checks the exit code, and that nothing was written."""
    before = content(directory.parent)
    assert look(command, directory) == 2
    shutil.rmtree(directory.parent / "out")
    assert content(directory.parent) == before
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("paftbench: error: ") and err.count("\n") == 1, (out, err)
    return err


def edit(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    payload = json.loads(path.read_text())
    change(payload)
    write_json(path, payload)


@pytest.mark.parametrize("command", ALL)
@pytest.mark.parametrize("name", ["trial.json", "result.json"])
def test_another_schema(command: str, name: str, sweep: Path, capsys: pytest.CaptureFixture[str]) -> None:
    edit(trials(sweep)[0] / name, lambda payload: payload.update(schema=99))
    assert f"{name} has schema 99; this version reads schema 1" in refused(command, sweep, capsys)


@pytest.mark.parametrize("command", ALL)
@pytest.mark.parametrize("kept", [0, 1, 200])
def test_a_result_that_was_cut_off(command: str, kept: int, sweep: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = trials(sweep)[0] / "result.json"
    path.write_text(path.read_text()[:kept])
    assert f"{path} is not JSON" in refused(command, sweep, capsys)


@pytest.mark.parametrize("command", ALL)
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[]", "holds no JSON mapping"),
        ('{"schema": 1}', "lacks 'id', 'outcome', 'metric'"),
        ("\udcff\ud800", "is not JSON"),
    ],
)
def test_a_result_that_is_something_else(
    command: str, text: str, said: str, sweep: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (trials(sweep)[0] / "result.json").write_bytes(text.encode("utf-8", "surrogatepass"))
    assert said in refused(command, sweep, capsys)


@pytest.mark.parametrize("command", ALL)
def test_a_result_without_its_plan(command: str, sweep: Path, capsys: pytest.CaptureFixture[str]) -> None:
    half = trials(sweep)[0]
    (half / "trial.json").unlink()
    assert f"{half} is not a trial directory: it has no trial.json" in refused(command, sweep, capsys)


@pytest.mark.parametrize("command", ALL)
def test_one_trial_without_its_plan(command: str, sweep: Path, capsys: pytest.CaptureFixture[str]) -> None:
    half = trials(sweep)[0]
    (half / "trial.json").unlink()
    assert f"{half} is not a trial directory: it has no trial.json" in refused(command, half, capsys)


@pytest.mark.parametrize("command", ALL)
def test_an_empty_directory(command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "sweep").mkdir()
    assert "sweep holds no trials" in refused(command, tmp_path / "sweep", capsys)


@pytest.mark.parametrize("command", ALL)
def test_no_directory(command: str, sweep: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "nowhere is not a directory of results" in refused(command, sweep / "nowhere", capsys)
    assert "result.json is not a directory of results" in refused(command, trials(sweep)[0] / "result.json", capsys)


@pytest.mark.parametrize("command", [name for name in ALL if not name.startswith("status")])
def test_plans_without_any_result(command: str, sweep: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for trial in trials(sweep):
        (trial / "result.json").unlink()
    assert "nothing has finished" in refused(command, sweep, capsys)


def test_status_counts_trials_without_a_result(sweep: Path, capsys: pytest.CaptureFixture[str]) -> None:
    every = trials(sweep)
    (every[0] / "result.json").unlink()
    assert look("status", sweep) == 0
    assert f"{len(every)} trials: {len(every) - 1} done, 0 running, 1 missing" in capsys.readouterr().out


@pytest.mark.parametrize("command", QUICK)
def test_a_trial_without_a_result_leaves_the_others_readable(command: str, sweep: Path) -> None:
    (trials(sweep)[0] / "result.json").unlink()
    assert look(command, sweep) == 0


@pytest.mark.parametrize("command", READ_LOGS)
def test_a_log_that_is_broken_in_the_middle(command: str, sweep: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for trial in trials(sweep):
        lines = (trial / "steps.jsonl").read_text().splitlines(keepends=True)
        (trial / "steps.jsonl").write_text("".join([lines[0], "{torn\n", *lines[1:]]))
    assert "steps.jsonl, line 2, is not JSON" in refused(command, sweep, capsys)


@pytest.mark.parametrize("command", READ_LOGS)
@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda row: 3, "holds no JSON mapping"),
        (lambda row: [row], "holds no JSON mapping"),
        (lambda row: {key: value for key, value in row.items() if key not in ("lr", "loss")}, "lacks 'loss', 'lr'"),
        (lambda row: {**row, "loss": []}, "loss must hold a number per rank, got none"),
        (lambda row: {**row, "loss": ["x"]}, "loss[0] must be a number, got 'x'"),
        (lambda row: {**row, "lr": None}, "lr must be a number, got None"),
        (lambda row: {**row, "divergence": {}}, "divergence must be a number, got {}"),
        (lambda row: {**row, "decision": {"period": 2}}, "decision lacks 'period_before', 'sigma'"),
        (lambda row: {**row, "seconds": {"compute": "x"}}, "seconds.compute must be a number, got 'x'"),
    ],
)
def test_a_row_of_a_log_that_is_something_else(
    command: str, change: Callable[[Any], Any], said: str, sweep: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for trial in trials(sweep):
        first, second, *rest = (trial / "steps.jsonl").read_text().splitlines()
        (trial / "steps.jsonl").write_text("\n".join([first, json.dumps(change(json.loads(second))), *rest, ""]))
    line = refused(command, sweep, capsys)
    assert "steps.jsonl, line 2" in line and said in line


@pytest.mark.parametrize("command", ["table --injections", "report"])
@pytest.mark.parametrize(
    ("row", "said"), [("7", "holds no JSON mapping"), ('{"step": 1}', "lacks 'rank', 'site', 'landed'")]
)
def test_a_strike_that_is_something_else(
    command: str, row: str, said: str, sweep: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for trial in trials(sweep):
        (trial / "injections.jsonl").write_text(f"{row}\n")
    line = refused(command, sweep, capsys)
    assert "injections.jsonl, line 1" in line and said in line


@pytest.mark.parametrize("command", ALL)
@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"trial": {}}, "trial lacks 'workload', 'world_size', 'steps', 'optimizer', 'seed', 'faults', 'mitigations'"),
        ({"trial": None}, "trial must be a mapping, got None"),
        ({"labels": [1]}, "labels must be a mapping, got [1]"),
        ({"judge": "best"}, "judge must be one of mean_model, worst_rank, rank0, got 'best'"),
        ({"tolerance": "x"}, "tolerance must be a finite number, got 'x'"),
    ],
)
def test_a_plan_that_is_something_else(
    command: str, change: dict[str, Any], said: str, sweep: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    edit(trials(sweep)[0] / "trial.json", lambda payload: payload.update(change))
    line = refused(command, sweep, capsys)
    assert "trial.json" in line and said.removeprefix("trial ") in line


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"workload": {}}, "workload lacks 'name'"),
        ({"workload": "resnet"}, "workload must be a mapping, got 'resnet'"),
        ({"optimizer": {"name": "sgd"}}, "optimizer lacks 'lr'"),
        ({"faults": {}}, "faults must be a list, got {}"),
        ({"faults": [3]}, "trial.faults[0] must be a mapping, got 3"),
        ({"mitigations": [{}]}, "trial.mitigations[0] lacks 'name'"),
    ],
)
def test_a_field_of_a_plan_that_is_something_else(
    change: dict[str, Any], said: str, sweep: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    edit(trials(sweep)[0] / "trial.json", lambda payload: payload["trial"].update(change))
    assert said in refused("table", sweep, capsys)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"outcome": 3}, "outcome must be one of error, crashed, hung, nonfinite, failed_to_learn, degraded, masked"),
        ({"outcome": "maskd"}, "outcome must be one of"),
        ({"id": "../../x"}, "id must be letters and digits, got '../../x'"),
        ({"id": "0123"}, "result.json is of the trial 0123, trial.json beside it of"),
        ({"metric": None}, "metric must be a mapping, got None"),
        ({"metric": {"rank0": "x"}}, "metric.rank0 must be a number, got 'x'"),
        ({"metric": {"rank0": True}}, "metric.rank0 must be a number, got True"),
        ({"strikes": None}, "strikes must be a mapping, got None"),
        ({"strikes": {"drawn": []}}, "strikes.drawn must be a whole number >= 0, got []"),
        ({"strikes": {"drawn": 10**30}}, "strikes.drawn must be a whole number >= 0, got 1000000"),
        ({"strikes": {"drawn": 5, "landed": 5, "changed": None}}, "strikes.changed must be there for a trial that is"),
        ({"strikes": {"drawn": 5, "landed": 5}}, "strikes.changed must be there for a trial that is"),
        ({"history": None}, "history must be a mapping, got None"),
        ({"history": {"step": 3}}, "history.step must be a list, got 3"),
        ({"history": {"step": [0, 5]}}, "history.mean_model must hold a number for each of its steps, got []"),
        ({"history": {"step": [5, 5]}}, "history.step must rise, got [5, 5]"),
        ({"mitigation": {"bytes": float("inf")}}, "mitigation.bytes must be a whole number >= 0, got inf"),
        ({"environment": {"git": {"sha": 3}}}, "environment.git.sha must be text, got 3"),
        ({"reason": 3}, "reason must be text, got 3"),
    ],
)
def test_a_value_of_a_result_that_is_something_else(
    change: dict[str, Any], said: str, sweep: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    edit(trials(sweep)[0] / "result.json", lambda payload: payload.update(change))
    assert said in refused("table", sweep, capsys)


@pytest.mark.parametrize("command", ["plot", "export --steps"])
def test_a_log_whose_last_line_was_cut_off_is_read_up_to_there(command: str, sweep: Path) -> None:
    for trial in trials(sweep):
        path = trial / "steps.jsonl"
        path.write_text(path.read_text()[:-20])
    assert look(command, sweep) == 0


@pytest.mark.parametrize("command", [*QUICK, "report"])
def test_trials_whose_process_wrote_no_result_of_its_own(command: str, sweep: Path) -> None:
    from paftbench.store.directory import write_failure

    for trial, outcome in zip(trials(sweep), ("crashed", "hung", "error"), strict=False):
        (trial / "result.json").unlink()
        (trial / "steps.jsonl").unlink()
        write_failure(trial, outcome, "exit code 1")
    assert look(command, sweep) == 0
