"""`docs/ci.md`: its files work as they stand, its commands exist, its workflows are YAML."""

import os
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from support.checkout import ROOT

from paftbench.cli.main import app, exit_code

PAGE = (ROOT / "docs" / "ci.md").read_text()
WORKFLOW = ROOT / "examples" / "github_actions.yml"


def blocks(language: str) -> list[str]:
    return re.findall(rf"^ *```{language}\n(.*?)^ *```", PAGE, re.DOTALL | re.MULTILINE)


def commands() -> list[str]:
    """Every `paftbench ...` of the page, in fenced blocks, in workflows and in running text."""
    fenced = "\n".join(re.findall(r"```[a-z]*\n(.*?)```", PAGE, re.DOTALL))
    running = re.findall(r"`(paftbench [^`]*\S)`", re.sub(r"```.*?```", "", PAGE, flags=re.DOTALL))
    found = [line.strip() for line in [*re.findall(r"(paftbench .*)", fenced), *running]]
    return sorted({line for line in found if not line.startswith("paftbench=")})


def test_the_page_has_commands_of_every_kind_that_it_speaks_of() -> None:
    assert {line.split()[1] for line in commands()} >= {"check", "verify", "run", "table"}
    assert any("--baseline" in line for line in commands()) and any("--junit" in line for line in commands())


@pytest.mark.parametrize("line", commands())
def test_every_command_of_the_page_is_one_that_the_command_line_takes(line: str) -> None:
    group: Any = typer.main.get_command(app)
    name, *arguments = shlex.split(line.split(" || ")[0])[1:]
    assert name in group.commands
    if arguments:
        group.commands[name].make_context(name, arguments)


def test_the_workflow_is_the_one_in_the_examples_and_complete() -> None:
    text = WORKFLOW.read_text()
    assert text in blocks("yaml")
    workflow = yaml.safe_load(text)
    assert {"pull_request", "push"} <= set(workflow[True])  # YAML 1.1 reads `on` so
    steps = workflow["jobs"]["gate"]["steps"]
    assert [step["uses"].split("@")[0] for step in steps if "uses" in step] == [
        "actions/checkout", "actions/setup-python", "actions/upload-artifact",
    ]  # fmt: skip
    assert steps[1]["with"]["cache"] == "pip"
    always = [step for step in steps if step.get("if") == "always()"]
    assert "GITHUB_STEP_SUMMARY" in always[0]["run"] and "gate.xml" in always[1]["with"]["path"]
    (check,) = [step["run"] for step in steps if step.get("name") == "Check"]
    assert "--junit gate.xml" in check and "--markdown gate.md" in check
    assert f"]({Path('..') / WORKFLOW.relative_to(ROOT)})" in PAGE


def test_the_gitlab_job_is_yaml() -> None:
    (job,) = [yaml.safe_load(block) for block in blocks("yaml") if block.startswith("convergence:")]
    assert job["convergence"]["artifacts"]["reports"] == {"junit": "gate.xml"}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with the files that the page says to save, the current one."""
    (tmp_path / "gate").mkdir()
    (tmp_path / "gate" / "rings.py").write_text(blocks("python")[0])
    (tmp_path / "gate" / "gate.yaml").write_text(next(block for block in blocks("yaml") if block.startswith("schema:")))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_files_of_the_page_keep_their_promises_and_plan_ten_trials(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code(["verify", "--fast", "gate/rings.py"]) == 0
    capsys.readouterr()
    assert exit_code(["run", "gate/gate.yaml", "--plugin", "gate/rings.py", "-n"]) == 0
    assert capsys.readouterr().out.count("missing") == 10


@pytest.mark.slow
def test_the_gate_of_the_page_passes_and_fails_without_the_clip(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    check = ["check", "gate/gate.yaml", "--plugin", "gate/rings.py"]
    assert exit_code([*check, "--junit", "gate.xml", "--markdown", "gate.md"]) == 0, capsys.readouterr().err
    assert (project / "gate.md").read_text() and "<testsuite" in (project / "gate.xml").read_text()
    (without,) = [line for line in commands() if "mitigations=[" in line]
    assert exit_code([*check, shlex.split(without)[-1]]) == 1
    assert "quality_lost" in capsys.readouterr().out
    assert os.listdir(project / "results") == ["runs"]
