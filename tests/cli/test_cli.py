"""The command line: one line per mistake, exit codes, results on stdout only, nothing finished lost."""

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from paftbench.cli.main import exit_code
from paftbench.store import files
from paftbench.store.directory import read_results

SMALL = """
schema: 1
name: small
about: For tests.
cost: seconds
base: {workload: {name: quadratic, dim: 50}, steps: 6, world_size: 2, eval_every: 3}
axes:
  mitigation:
    ddp: {mitigations: []}
    paft_sync: {mitigations: [{name: paft_sync, period: 2}]}
grids:
  - name: noise
    set: {faults: [{name: noise, model: gaussian_noise, degree: 0.1}]}
seeds: 1
tolerance: 0.02
"""
FAULT_PLUGIN = '''
from dataclasses import dataclass
from paftbench.faults import SparseFault

@dataclass(frozen=True, kw_only=True)
class Negate(SparseFault):
    """Change the sign of struck elements."""
    name = "negate"
    units = {"per_element": (0.0, 1.0)}
    unit: str = "per_element"

    def change(self, value_K, draws):
        return -value_K
'''


@pytest.fixture
def small(tmp_path: Path) -> Path:
    path = tmp_path / "small.yaml"
    path.write_text(SMALL)
    return path


def paftbench(*arguments: Any) -> int:
    return exit_code([str(argument) for argument in arguments])


def one_line_error(capsys: pytest.CaptureFixture[str]) -> str:
    """The error just printed, checked to be one line on stderr and nothing on stdout."""
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("paftbench: error: ") and err.count("\n") == 1, (out, err)
    return err


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], "Missing command"),
        (["rnu"], "No such command 'rnu'"),
        (["run"], "Missing argument 'EXPERIMENT'"),
        (["run", "quikstart"], "did you mean 'quickstart'?"),
        (["run", "quickstart", "step=3"], "unknown key 'step'; did you mean 'steps'?"),
        (["run", "quickstart", "--bogus"], "No such option"),
        (["run", "quickstart", "-j", "0"], "must be >= 1, got 0"),
        (["run", "quickstart", "-k", "(a"], "a parenthesis is not closed"),
        (["run", "quickstart", "-k", "nothing_like_it"], "matches none of"),
        (["run", "quickstart", "--procs", "2"], "procs (processes of a torchrun trial) needs placement torchrun"),
        (["run", "quickstart", "--plugin", "missing.py"], "missing.py does not exist"),
        (["run", "quickstart", "nodes=2", "--placement", "torchrun"], "nodes 2 needs an engine"),
        (["ls", "fault-modls"], "'KIND': 'fault-modls' is not one of"),
        (["ls", "fault-models", "bit_flop"], "did you mean 'bit_flip'?"),
        (["status", "nowhere"], "nowhere is not a directory of results"),
        (["table", "nowhere"], "nowhere is not a directory of results"),
        (["data", "digit"], "did you mean 'digits'?"),
        (["data", "digits", "pth=x"], "expected path=FILE, got 'pth=x'"),
    ],
)
def test_a_mistake_is_one_line_and_exit_2(
    arguments: list[str], expected: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    extra = ["--out", str(tmp_path)] if arguments[:2] == ["run", "quickstart"] else []
    assert paftbench(*arguments, *extra) == 2
    assert expected in one_line_error(capsys)
    assert list(tmp_path.iterdir()) == []


def test_missing_data_names_the_command_that_gets_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PAFTBENCH_DATA", str(tmp_path / "empty"))
    assert paftbench("run", "reference/fashion_mnist", "--out", tmp_path) == 2
    assert "paftbench data fashion_mnist" in one_line_error(capsys)


def test_a_plugin_file_that_does_not_import_is_one_line(
    small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "broken.py").write_text("def (")
    assert paftbench("run", small, "--plugin", tmp_path / "broken.py", "-n") == 2
    assert "broken.py: SyntaxError" in one_line_error(capsys)


def test_the_version_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert paftbench("--version") == 0
    assert capsys.readouterr().out == f"paftbench {version('paftbench')}\n"


def test_help_needs_no_torch() -> None:
    code = (
        "import sys\nfrom paftbench.cli.main import exit_code\nexit_code(['--help'])\nexit_code(['run', '--help'])\n"
        "sys.exit('torch' in sys.modules or 'pandas' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "one per core" in " ".join(done.stdout.replace("│", " ").split())


def test_a_plan_lists_every_trial_and_writes_nothing(
    small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "runs"
    assert paftbench("run", small, "-n", "--out", out) == 0
    header, *lines = capsys.readouterr().out.splitlines()
    assert header.split() == ["id", "name", "state", "strikes", "seconds"]
    assert [line.split()[1:] for line in lines] == [
        ["golden/s0", "missing", "0", "-"],
        ["noise/ddp/s0", "missing", "600", "-"],
        ["noise/paft_sync/s0", "missing", "600", "-"],
    ]
    assert not out.exists()


def test_a_run_ends_with_table_and_directory_and_a_second_one_runs_nothing(
    small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "runs"
    assert paftbench("run", small, "--out", out, "-j", "1") == 0
    printed = capsys.readouterr()
    assert printed.out.splitlines()[-1] == str(out / "small") and "paft_sync" in printed.out
    assert sum(line.startswith("[") for line in printed.err.splitlines()) == 3
    before = {record.id: (record.path / "result.json").stat().st_mtime_ns for record in read_results(out / "small")}
    assert paftbench("run", small, "--out", out, "-j", "1") == 0
    assert "3 trials, 3 already done" in capsys.readouterr().err
    assert before == {r.id: (r.path / "result.json").stat().st_mtime_ns for r in read_results(out / "small")}

    assert paftbench("run", small, "-n", "--out", out, "mitigation=ddp,paft_sync") == 0
    assert [line.split()[2] for line in capsys.readouterr().out.splitlines()[1:]] == ["done"] * 3
    assert paftbench("status", out / "small") == 0
    assert "3 trials: 3 done, 0 running, 0 missing" in capsys.readouterr().out


def test_a_selection_brings_the_golden_runs_it_is_judged_by(
    small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert paftbench("run", small, "-n", "-k", "paft_sync", "--out", tmp_path) == 0
    names = [line.split()[1] for line in capsys.readouterr().out.splitlines()[1:]]
    assert names == ["golden/s0", "noise/paft_sync/s0"]


def test_a_users_fault_model_runs_from_its_file(
    small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "negate.py").write_text(FAULT_PLUGIN)
    fault = "faults=[{name: noise, model: negate, degree: 1e-1}]"
    assert paftbench("run", small, fault, "--plugin", tmp_path / "negate.py", "--out", tmp_path / "runs") == 0
    results = [record.result for record in read_results(tmp_path / "runs" / "small") if record.planned.golden_id]
    assert len(results) == 2 and all(result and (result.strikes.landed or 0) > 0 for result in results)
    capsys.readouterr()
    assert paftbench("ls", "fault-models", "negate", "--json", "--plugin", tmp_path / "negate.py") == 0
    assert [field["name"] for field in json.loads(capsys.readouterr().out)["fields"]] == ["degree", "unit"]


def test_a_trial_that_ends_in_error_makes_exit_1_and_names_its_log(
    small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plugin = tmp_path / "broken_model.py"
    plugin.write_text(FAULT_PLUGIN.replace("return -value_K", "raise ValueError('ours')").replace("negate", "broken"))
    fault = "faults=[{name: noise, model: broken, degree: 1e-1}]"
    arguments = ["run", small, fault, "--plugin", plugin, "--out", tmp_path / "runs", "mitigation=ddp"]
    assert paftbench(*arguments) == 1
    err = capsys.readouterr().err
    assert "ours" in err and "log.txt" in err
    assert paftbench(*arguments) == 1
    assert "2 trials, 2 already done" in capsys.readouterr().err


def test_results_of_another_schema_are_refused_and_left_alone(
    small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert paftbench("run", small, "-n", "--out", tmp_path) == 0
    first = capsys.readouterr().out.splitlines()[1].split()[0]
    directory = tmp_path / "small" / first
    directory.mkdir(parents=True)
    (directory / "trial.json").write_text('{"schema": 99}')
    (directory / "result.json").write_text('{"schema": 99}')
    assert paftbench("run", small, "--out", tmp_path) == 2
    assert "has schema 99; this version reads schema 1" in one_line_error(capsys)
    assert (directory / "result.json").read_text() == '{"schema": 99}'


def test_a_full_disk_is_one_line_and_exit_2(
    small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(old: Path, new: Path) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(tmp_path))

    monkeypatch.setattr(files.os, "replace", full)
    assert paftbench("run", small, "--out", tmp_path / "runs") == 2
    assert one_line_error(capsys) == f"paftbench: error: No space left on device: {tmp_path}\n"


@pytest.mark.skipif(not (hasattr(os, "geteuid") and os.geteuid() == 0), reason="mounting a small disk needs root")
def test_a_disk_that_fills_up_during_a_sweep_costs_nothing_that_has_finished(
    small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(disk)]
    if not shutil.which("mount") or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("this system does not let us mount a small disk")
    try:
        assert paftbench("run", small, "--out", disk, "-k", "golden") == 0
        capsys.readouterr()
        with pytest.raises(OSError), (disk / "filler").open("wb") as filler:
            while True:
                filler.write(b"0" * 4096)
                filler.flush()
        done = {record.id: record.result for record in read_results(disk / "small") if record.result}
        assert paftbench("run", small, "--out", disk) == 2
        assert capsys.readouterr().err.splitlines()[-1].startswith("paftbench: error: No space left on device")
        after = {record.id: record.result for record in read_results(disk / "small") if record.result}
        assert after == done and len(done) == 1
        (disk / "filler").unlink()
        assert paftbench("run", small, "--out", disk) == 0
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_ctrl_c_exits_130_leaves_no_child_and_keeps_what_has_finished(small: Path, tmp_path: Path) -> None:
    small.write_text(SMALL.replace("steps: 6", "steps: 2000000, timeout_s: 600"))
    command = [sys.executable, "-m", "paftbench.cli.main", "run", str(small), "--out", str(tmp_path / "runs")]
    with subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, start_new_session=True, preexec_fn=_heed_ctrl_c
    ) as process:
        try:
            deadline = time.monotonic() + 60
            while not list((tmp_path / "runs").glob("small/*/steps.jsonl")):
                assert time.monotonic() < deadline and process.poll() is None
                time.sleep(0.1)
            os.killpg(process.pid, signal.SIGINT)
            _, err = process.communicate(timeout=30)
        finally:
            process.kill()
    assert process.returncode == 130
    assert err.splitlines()[-1] == "paftbench: interrupted; what has finished is kept"
    assert not list((tmp_path / "runs").glob("small/*/result.json"))
    assert not list((tmp_path / "runs").glob("small/.*.claim"))


def _heed_ctrl_c() -> None:
    """A shell that runs the tests in the background lets them ignore SIGINT, and their children inherit that."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_lists_are_json_on_request(capsys: pytest.CaptureFixture[str]) -> None:
    for kind in ("fault-models", "mitigations", "workloads", "data", "experiments"):
        assert paftbench("ls", kind, "--json") == 0
        entries = json.loads(capsys.readouterr().out)
        assert entries and all("name" in entry for entry in entries)
        assert paftbench("ls", kind) == 0
        assert entries[0]["name"] in capsys.readouterr().out


@pytest.mark.parametrize("kind", ["fault-models", "mitigations", "workloads"])
def test_every_field_of_a_plugin_has_a_meaning(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert paftbench("ls", kind, "--json") == 0
    for name in [entry["name"] for entry in json.loads(capsys.readouterr().out)]:
        assert paftbench("ls", kind, name, "--json") == 0
        assert all(field["meaning"] for field in json.loads(capsys.readouterr().out)["fields"]), name


def test_doctor_says_what_it_found_and_what_to_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert paftbench("doctor", "--json", "--out", tmp_path / "runs") == 0
    checks = {check["name"]: check for check in json.loads(capsys.readouterr().out)}
    for name in ("torch and torchvision", "gloo between 2 processes", "DDP hook", "free port", "data digits"):
        assert checks[name]["ok"]
    assert all(check["ok"] or check["todo"] for check in checks.values())
    assert list(tmp_path.iterdir()) == []


def test_data_prints_source_licence_and_fingerprint(capsys: pytest.CaptureFixture[str]) -> None:
    assert paftbench("data", "digits") == 0
    out = capsys.readouterr().out
    assert "sha256: " in out and "licence: " in out and "source: " in out
