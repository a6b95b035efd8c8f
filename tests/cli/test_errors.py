"""Whose an error is: the user's is a line and exit 2, any other of a command is paftbench's own."""

from pathlib import Path

import pytest

from paftbench import plugins
from paftbench.analysis import table
from paftbench.cli.main import exit_code
from paftbench.errors import Missing, Refused


@pytest.mark.parametrize(
    "bug", [ValueError("x and y must have same first dimension"), LookupError("no"), KeyError("a")]
)
def test_a_bug_of_ours_is_never_sold_as_the_users_mistake(
    bug: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: object, **__: object) -> str:
        raise bug

    monkeypatch.setattr(table, "render", broken)
    assert exit_code(["table", str(tmp_path)]) == 1
    told = capsys.readouterr()
    assert told.out == "" and told.err.startswith("Traceback") and "in broken" in told.err
    assert told.err.splitlines()[-1] == (
        "paftbench: an error of paftbench's own, not of yours: "
        "please report the lines above, with what `paftbench doctor --json` says"
    )


def test_what_the_user_got_wrong_is_one_line_and_exit_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(["table", str(tmp_path / "nowhere")]) == 2
    told = capsys.readouterr()
    assert told.out == "" and told.err.startswith("paftbench: error: ") and told.err.count("\n") == 1


def test_what_is_refused_can_be_caught_as_what_python_calls_it() -> None:
    assert issubclass(Refused, ValueError)
    assert issubclass(Missing, Refused) and issubclass(Missing, LookupError)
    with pytest.raises(LookupError, match="no fault model 'bit_flop'; did you mean 'bit_flip'"):
        plugins.find("fault_models", "bit_flop")


WORKLOAD = """
from dataclasses import dataclass

from paftbench.workloads import DataId
from paftbench.workloads.quadratic import Quadratic


@dataclass(frozen=True, kw_only=True)
class Tides(Quadratic):
    name = "tides"

    def data_id(self) -> DataId:
        raise ValueError("no tide tables here")
"""


def test_what_a_users_workload_refuses_is_the_users(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "tides.py").write_text(WORKLOAD)
    base = "{workload: {name: tides}, steps: 3}"
    (tmp_path / "tides.yaml").write_text(f"{{schema: 1, name: tides, base: {base}, grids: [{{name: plain}}]}}")
    assert exit_code(["run", str(tmp_path / "tides.yaml"), "-n", "--plugin", str(tmp_path / "tides.py")]) == 2
    assert capsys.readouterr().err == "paftbench: error: workload tides: no tide tables here\n"
