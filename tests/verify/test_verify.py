"""`paftbench verify`: a line per promise, exit 1 where one is broken, and what it may be given."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.checkout import ROOT, TESTS
from support.plugin_files import plugins_kept

from paftbench import fault_models, plugins
from paftbench.cli.main import exit_code
from paftbench.process import has_ended

DEFECTS = TESTS / "contract_defects"
SHIPPED = Path(fault_models.__file__).parent

TWO = '''
"""A good fault model and a bad mitigation."""

from dataclasses import dataclass

from paftbench.faults import SparseFault
from paftbench.mitigations import Mitigation, Step


@dataclass(frozen=True, kw_only=True)
class Zeroed(SparseFault):
    """Struck elements become zero."""

    name = "zeroed"
    units = {"per_element": (0.0, 1.0)}
    unit: str = "per_element"

    def change(self, value_K, draws):
        return value_K.new_zeros(len(value_K))


@dataclass(frozen=True, kw_only=True)
class Careless(Mitigation):
    """Divides by what may be zero."""

    name = "careless"

    def on_gradients(self, step: Step) -> None:
        raise ZeroDivisionError("division by zero")
'''


@pytest.fixture(autouse=True)
def forget() -> Iterator[None]:
    with plugins_kept():
        yield


def lines(text: str, word: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith(f"  {word}")]


def test_a_shipped_fault_model_holds_and_every_promise_has_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(["verify", "--fast", str(SHIPPED / "gaussian_noise.py")]) == 0
    out, err = capsys.readouterr()
    title, *rest = out.splitlines()
    assert title.startswith("fault model gaussian_noise (") and title.endswith("gaussian_noise.py)")
    assert "  holds   every dtype it declares is really struck (4 cases)" in rest
    assert len(lines(out, "holds")) == 33 and lines(out, "BROKEN") == []
    assert rest[-1] == "  33 promises hold, 0 broken, 1 not tried"
    assert err.splitlines() == ["verify: fault model gaussian_noise, the fast part"]


def test_an_installed_plugins_file_is_that_plugin_and_a_name_will_do(capsys: pytest.CaptureFixture[str]) -> None:
    before = dict(plugins.from_files["fault_models"])
    assert exit_code(["verify", "--fast", "stale_shard"]) == 0
    by_name = capsys.readouterr().out
    assert exit_code(["verify", "--fast", str(SHIPPED / "stale_shard.py")]) == 0
    assert capsys.readouterr().out == by_name
    assert plugins.from_files["fault_models"] == before


def test_a_broken_promise_is_named_with_what_was_expected_and_got(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "two.py"
    file.write_text(TWO)
    assert exit_code(["verify", "--fast", str(file)]) == 1
    out, err = capsys.readouterr()
    assert err.splitlines() == [
        "verify: fault model zeroed, the fast part", "verify: mitigation careless, the fast part",
    ]  # fmt: skip
    good, bad = out.split("mitigation careless")
    assert lines(good, "BROKEN") == [] and len(lines(good, "holds")) == 34
    number = 1 + file.read_text().splitlines().index('        raise ZeroDivisionError("division by zero")')
    error = f"expected no error, got ZeroDivisionError: division by zero (two.py, line {number})"
    assert f"  BROKEN  training without faults stays finite: {error}" in bad.splitlines()
    assert re.search(r"  \d+ promises hold, \d+ broken, \d+ not tried$", bad.rstrip())


def test_what_cannot_be_built_is_told_by_its_declaration_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "unfinished.py"
    fault_model = TWO.split("@dataclass(frozen=True, kw_only=True)\nclass Careless")[0]
    file.write_text(fault_model.replace('unit: str = "per', 'unit = "per'))
    assert exit_code(["verify", "--fast", str(file)]) == 1
    broken = lines(capsys.readouterr().out, "BROKEN")
    assert any("units ranges sites and dtypes are declared: expected a default unit among" in line for line in broken)


def test_a_mitigation_is_told_whether_it_changes_healthy_training(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(["verify", "--fast", "regather"]) == 0
    assert "  note    without faults it trains with the very bits of plain DDP" in capsys.readouterr().out.splitlines()


def test_the_mitigation_of_the_guide_keeps_every_promise(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    guide = (ROOT / "docs" / "mitigations.md").read_text()
    file = tmp_path / "skip_nonfinite.py"
    file.write_text(guide.split("```python\n")[1].split("```")[0])
    assert exit_code(["verify", "--fast", str(file)]) == 0, capsys.readouterr().out


def test_the_dense_fault_of_the_guide_keeps_every_promise(tmp_path: Path) -> None:
    file = tmp_path / "negated.py"
    file.write_text((ROOT / "fault_models" / "README.md").read_text().split("```python\n")[2].split("```")[0])
    assert exit_code(["verify", "--fast", str(file)]) == 0


@pytest.mark.parametrize(("said", "code"), [(" -> int:", 2), (":", 1)])
def test_a_fault_model_of_the_earlier_contract_is_told_by_name_what_to_return(
    said: str, code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "old.py"
    dense = (ROOT / "fault_models" / "README.md").read_text().split("```python\n")[2].split("```")[0]
    returned = dense.replace("Changed.between(before_N, grad_N, where)", "grad_N.numel()")
    file.write_text(returned.replace(" -> Changed:", said))
    assert exit_code(["verify", "--fast", str(file)]) == code
    out, err = capsys.readouterr()
    must = "must return paftbench.faults.Changed(elements, squares)"
    told = [line for line in (out + err).splitlines() if must in line]
    assert told and all(re.search("fault model [Nn]egated", line) for line in told)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (None, "plugin file .*nothing.py does not exist"),
        ("1 / 0", "plugin file .*nothing.py: ZeroDivisionError: division by zero"),
        ("x = 1", "plugin file .*nothing.py defines no fault model, mitigation or workload"),
    ],
)
def test_a_file_without_plugins_is_a_mistake_of_use(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str | None, expected: str
) -> None:
    file = tmp_path / "nothing.py"
    if text is not None:
        file.write_text(text)
    assert exit_code(["verify", str(file)]) == 2
    out, err = capsys.readouterr()
    assert out == "" and re.fullmatch(f"paftbench: error: {expected}\n", err)


def test_an_unknown_name_is_answered_with_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(["verify", "paft_sink"]) == 2
    assert "no plugin 'paft_sink'; did you mean 'paft_sync'?" in capsys.readouterr().err
    assert exit_code(["verify"]) == 2


def test_a_copy_of_a_shipped_file_is_tried_itself(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    copy = tmp_path / "stale_shard.py"
    shutil.copy(SHIPPED / "stale_shard.py", copy)
    copy.write_text(copy.read_text().replace("between(before_N", "between(before_N + 1"))
    assert exit_code(["verify", "--fast", str(copy)]) == 1
    assert "BROKEN  the counts it reports are what really changed" in capsys.readouterr().out


@pytest.mark.parametrize(
    "command", ["verify --fast {}", "check ci/quick --no-run --plugin {}", "ls mitigations --plugin {}"]
)
@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("raise SystemExit(0)", "SystemExit: 0"),
        ("{}['lost']", "KeyError: 'lost'"),
        ("raise ValueError('no such device')", "ValueError: no such device"),
    ],
)
def test_a_plugin_file_that_ends_or_fails_on_import_is_an_error_that_names_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str, line: str, says: str
) -> None:
    file = tmp_path / "leaves.py"
    file.write_text(line + "\n")
    assert exit_code(command.format(file).split()) == 2
    told = capsys.readouterr()
    assert told.out == "" and told.err.splitlines()[-1] == f"paftbench: error: plugin file {file}: {says}"


def test_two_plugins_of_one_name_in_a_file_are_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "twice.py"
    file.write_text(TWO + TWO.replace("class Zeroed", "class Other").replace('"""A good', '"""Another'))
    assert exit_code(["verify", "--fast", str(file)]) == 2
    assert "defines two fault_models called 'zeroed'" in capsys.readouterr().err


def test_a_plugin_that_exits_is_broken_and_what_it_prints_is_no_result(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "leaves.py"
    text = TWO.replace('raise ZeroDivisionError("division by zero")', "print('loud'); raise SystemExit(0)")
    file.write_text(
        "print('loud')\n" + text.partition("@dataclass")[0] + "@dataclass" + text.rpartition("@dataclass")[2]
    )
    assert exit_code(["verify", "--fast", str(file)]) == 1
    told = capfd.readouterr()
    assert any("SystemExit: 0" in line for line in lines(told.out, "BROKEN"))
    assert "loud" not in told.out and "loud" in told.err


ENDINGS = [
    ("os.kill(os.getpid(), signal.SIGSEGV)", "killed by SIGSEGV"),
    ("os._exit(0)", "exit code 0"),
    ("os.fork() and os._exit(3); time.sleep(9); os._exit(0)", "exit code 3"),  # one still holds the pipe
]


@pytest.mark.parametrize(("line", "got"), ENDINGS)
def test_a_plugin_that_ends_the_process_is_broken_in_the_promise_under_trial(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], line: str, got: str
) -> None:
    file = tmp_path / "ends.py"
    zeroed = TWO.split("@dataclass(frozen=True, kw_only=True)\nclass Careless")[0]
    file.write_text("import os, signal, time\n" + zeroed.replace("return value_K", f"{line}\n        return value_K"))
    assert exit_code(["verify", "--fast", str(file)]) == 1
    out = capfd.readouterr().out
    expected = f"every dtype it declares is really struck: expected a verdict, got {got}"
    assert lines(out, "BROKEN") == [f"  BROKEN  {expected}"] and out.endswith(expected + "\n")


def test_a_file_that_ends_the_process_on_import_is_broken(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "ends.py"
    file.write_text("import os\nos._exit(0)\n")
    assert exit_code(["verify", str(file)]) == 1
    assert capsys.readouterr().out == f"  BROKEN  importing {file}: expected a verdict, got exit code 0\n"


SLOW = """
import os, pathlib, time
pathlib.Path(__file__).with_suffix('.pid').write_text(str(os.getpid()))
time.sleep(60)
"""


def pid_of(file: Path) -> int:
    """The process that tries the plugins of `SLOW`, once it is there."""
    for _ in range(600):
        if (pid := file.with_suffix(".pid")).exists() and pid.read_text():
            return int(pid.read_text())
        time.sleep(0.1)
    raise AssertionError("no process")


@pytest.mark.parametrize("whom", ["child", "parent"])
def test_a_kill_from_outside_is_broken_and_ctrl_c_leaves_no_process(tmp_path: Path, whom: str) -> None:
    file = tmp_path / "slow.py"
    file.write_text(SLOW)
    command = [sys.executable, "-m", "paftbench.cli.main", "verify", str(file)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        child = pid_of(file)
        os.kill(*((child, signal.SIGKILL) if whom == "child" else (process.pid, signal.SIGINT)))
        out, err = process.communicate(timeout=60)
    assert has_ended(child)
    if whom == "child":
        assert process.returncode == 1
        assert out == f"  BROKEN  importing {file}: expected a verdict, got killed by SIGKILL\n"
    else:
        assert (process.returncode, out) == (130, "")
        assert err == "paftbench: interrupted; what has finished is kept\n"


def test_verify_itself_does_not_import_torch(tmp_path: Path) -> None:
    code = (
        "import sys; from paftbench.cli.main import exit_code; "
        f"code = exit_code(['verify', {str(tmp_path / 'none.py')!r}]); assert code == 2 and 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
