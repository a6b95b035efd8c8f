"""Plugins of installed distributions: which one a name means, and what a broken one may do (nothing)."""

import json
import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from paftbench import installed, plugins

GOOD = """
from dataclasses import dataclass
from paftbench.faults import SparseFault


@dataclass(frozen=True, kw_only=True)
class Zeroed(SparseFault):
    \"\"\"Struck elements become zero.\"\"\"

    name = "{name}"
    units = {{"per_element": (0.0, 1.0)}}
    unit: str = "per_element"

    def change(self, value_K, draws):
        return value_K * 0
"""

OWN = sorted(installed.usable("fault_models"))
Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Puts a distribution with fault models (name -> module's text) on the path, here and in child processes."""

    def put(distribution: str, models: dict[str, str], cls: str = "Zeroed") -> None:
        module = distribution.replace("-", "_")
        info = tmp_path / f"{module}-0.3.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 0.3\n")
        lines = [f"{name} = {module}_{number}:{cls}" for number, name in enumerate(models)]
        (info / "entry_points.txt").write_text("\n".join(["[paftbench.fault_models]", *lines]) + "\n")
        for number, text in enumerate(models.values()):
            (tmp_path / f"{module}_{number}.py").write_text(text)
        forget()

    def forget() -> None:
        for cached in (installed.registered, installed.load, installed.usable):
            cached.cache_clear()

    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    yield put
    monkeypatch.undo()
    forget()


def warned(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


def test_an_installed_plugin_is_known_and_says_where_it_comes_from(install: Install) -> None:
    install("other-faults", {"zeroed": GOOD.format(name="zeroed")})
    assert plugins.find("fault_models", "zeroed") is plugins.known("fault_models")["zeroed"]
    assert plugins.origin_of("fault_models", "zeroed") == "other-faults 0.3"
    assert plugins.origin_of("fault_models", "bit_flip").startswith("paftbench ")


@pytest.mark.parametrize(
    ("text", "cls", "reason"),
    [
        ("import no_such_module_anywhere", "Zeroed", "ModuleNotFoundError: No module named 'no_such_module_anywhere'"),
        ("1 / 0", "Zeroed", "ZeroDivisionError: division by zero"),
        ("def half(:", "Zeroed", "SyntaxError: "),
        (GOOD.format(name="zeroed"), "Missing", "AttributeError: "),
        ("Zeroed = 3", "Zeroed", "broken_faults_0:Zeroed is not a fault model"),
        ("class Zeroed: pass", "Zeroed", "broken_faults_0:Zeroed is not a fault model"),
        (GOOD.format(name="other"), "Zeroed", "broken_faults_0:Zeroed has the name 'other'"),
    ],
    ids=["import", "raises", "syntax", "no_class", "no_type", "no_plugin", "name"],
)
def test_a_broken_one_is_left_out_with_one_line_that_names_its_distribution(
    install: Install, caplog: pytest.LogCaptureFixture, text: str, cls: str, reason: str
) -> None:
    install("broken-faults", {"zeroed": text}, cls)
    try:
        assert sorted(installed.usable("fault_models")) == OWN
        (line,) = warned(caplog)
        assert line.startswith(
            "paftbench: warning: fault model 'zeroed' of broken-faults 0.3 cannot be used: " + reason
        )
        assert "\n" not in line
        plugins.known("fault_models")
        assert len(warned(caplog)) == 1
        with pytest.raises(LookupError, match=r"fault model 'zeroed' of broken-faults 0\.3 cannot be used: "):
            plugins.find("fault_models", "zeroed")
    finally:
        sys.modules.pop("broken_faults_0", None)


def test_a_broken_one_is_not_even_imported_where_another_is_wanted(
    install: Install, caplog: pytest.LogCaptureFixture
) -> None:
    install("broken-faults", {"zeroed": "1 / 0"})
    assert plugins.find("fault_models", "bit_flip").name == "bit_flip"
    with pytest.raises(LookupError, match="no fault model 'zeroes'; did you mean 'zeroed'"):
        plugins.find("fault_models", "zeroes")
    assert warned(caplog) == []


def test_a_name_that_two_distributions_give_means_paftbenchs_own(
    install: Install, caplog: pytest.LogCaptureFixture
) -> None:
    install("a-thief", {"bit_flip": GOOD.format(name="bit_flip")})
    assert plugins.find("fault_models", "bit_flip").__module__ == "paftbench.fault_models.bit_flip"
    own = plugins.origin_of("fault_models", "bit_flip")
    assert warned(caplog) == [
        f"paftbench: warning: fault model 'bit_flip' of a-thief 0.3 is left out: {own} has one of that name"
    ]


def test_commands_go_on_beside_a_broken_one(install: Install, tmp_path: Path) -> None:
    install("broken-faults", {"zeroed": "1 / 0"})
    command = [sys.executable, "-m", "paftbench.cli.main", "ls", "fault-models", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=os.environ)
    assert done.returncode == 0 and [entry["name"] for entry in json.loads(done.stdout)] == OWN
    assert done.stderr.splitlines() == [
        "paftbench: warning: fault model 'zeroed' of broken-faults 0.3 cannot be used: "
        "ZeroDivisionError: division by zero"
    ]
