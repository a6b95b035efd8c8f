"""What is shipped beside the code: versions, experiments, documentation, licence."""

import ast
import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from support.checkout import ROOT

from paftbench.building import build
from paftbench.faults import SparseFault
from paftbench.faults.draws import Draws
from paftbench.plugins import load_file

EXPERIMENTS = sorted((ROOT / "experiments").glob("**/*.yaml"))
DOCUMENTS = [
    *ROOT.glob("*.md"),
    *(
        path
        for folder in ("docs", "examples", "experiments", "fault_models", "results", "tools")
        for path in (ROOT / folder).glob("*.md")
    ),
]


def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def example(document: str) -> str:
    """The first Python block of a document."""
    found = re.search(r"```python\n(.*?)```", (ROOT / document).read_text(), re.DOTALL)
    assert found is not None
    return found.group(1)


def tracked() -> list[Path]:
    """Files of the repository; of the checkout where it is not a repository."""
    try:
        listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("not a git checkout")
    return [path for name in listed.split("\0") if name and (path := ROOT / name).is_file()]


def test_citation_changelog_and_package_name_one_version() -> None:
    version = project()["version"]
    assert str(yaml.safe_load((ROOT / "CITATION.cff").read_text())["version"]) == version
    newest = re.search(r"^## \[(\d[^\]]*)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert newest is not None and newest.group(1) == version


def test_citation_names_the_paper_as_the_work_of_others() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    (paper,) = citation["references"]
    assert len(paper["authors"]) == 9 and paper["url"].startswith("https://openreview.net/")
    assert citation["authors"] == [{"name": "The paftbench authors"}]


def test_licence_is_there_and_is_the_declared_one() -> None:
    assert project()["license"] == "BSD-3-Clause"
    assert (ROOT / "LICENSE").read_text().startswith("BSD 3-Clause License")


@pytest.mark.parametrize("path", EXPERIMENTS, ids=lambda path: str(path.relative_to(ROOT / "experiments")))
def test_a_shipped_experiment_is_named_by_its_path(path: Path) -> None:
    content = yaml.safe_load(path.read_text())
    assert content["schema"] == 1
    assert content["name"] == str(path.relative_to(ROOT / "experiments").with_suffix(""))
    assert f"`{content['name']}`" in (ROOT / "experiments" / "README.md").read_text()


def test_the_quickstart_is_shipped() -> None:
    assert ROOT / "experiments" / "quickstart.yaml" in EXPERIMENTS


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_documents_name_only_commands_that_exist(path: Path) -> None:
    modules = {file.stem.replace("_", "-") for file in (ROOT / "paftbench" / "cli").glob("*.py")}
    named = set(re.findall(r"\bpaftbench ([a-z]+)\b(?=[^\n]*[`\n])", "\n".join(code_of(path.read_text()))))
    assert named <= modules


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_documents_link_only_to_files_that_exist(path: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)", path.read_text()):
        if not target.startswith("https://"):
            assert (path.parent / target).exists(), target


def test_documents_name_only_make_targets_that_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {
        name
        for path in DOCUMENTS
        for code in code_of(path.read_text())
        for name in re.findall(r"\bmake ([a-z-]+)", code)
    }
    assert {"quickstart", "test"} <= named <= targets


def code_of(text: str) -> list[str]:
    """Fenced blocks and inline code."""
    blocks = re.findall(r"```[a-z]*\n(.*?)```", text, re.DOTALL)
    inline = re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL))
    return [code + "\n" for code in blocks + inline]


def test_the_fault_model_of_the_guide_works_as_it_stands(tmp_path: Path) -> None:
    file = tmp_path / "scaled_element.py"
    file.write_text(example("fault_models/README.md"))
    (cls,) = load_file(file)
    model = build(cls, {"degree": 1e-3, "factor": 50}, "fault")
    assert isinstance(model, SparseFault)
    key = (0, "big", 0, 0, 0)
    for dtype in (torch.float64, torch.float32, torch.bfloat16, torch.float16):
        draws = Draws(key, step=0, rank=0, row=0, dtype=dtype).among(40, np.arange(40))
        before = torch.ones(40, dtype=dtype)
        after = model.change(before, draws)
        assert after.dtype == dtype and set(after.tolist()) == {50.0, -50.0}
        assert bool((before == 1).all())


def test_the_mitigation_of_the_guide_loads_as_it_stands(tmp_path: Path) -> None:
    file = tmp_path / "skip_nonfinite.py"
    file.write_text(example("docs/mitigations.md"))
    (cls,) = load_file(file)
    assert build(cls, {}, "mitigation").name == "skip_nonfinite"


def test_constraints_pin_a_matching_torch_pair_and_every_dependency() -> None:
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#")]
    assert all(re.fullmatch(r"[A-Za-z0-9_.-]+==[^\s@/]+", line) for line in lines)
    pinned = {name.lower().replace("_", "-"): version for name, version in (line.split("==") for line in lines)}
    assert (pinned["torch"], pinned["torchvision"]) == ("2.14.1", "0.29.1")
    wanted = project()["dependencies"] + project()["optional-dependencies"]["dev"]
    missing = {re.split(r"[<>=~! ]", line)[0].lower() for line in wanted} - set(pinned)
    assert not missing


def test_every_registered_plugin_names_a_file_that_exists() -> None:
    for group in project()["entry-points"].values():
        for target in group.values():
            module, _, name = target.partition(":")
            source = ROOT / (module.replace("paftbench.fault_models", "fault_models").replace(".", "/") + ".py")
            body = ast.parse(source.read_text()).body
            defined = {node.name for node in body if isinstance(node, ast.ClassDef)}
            defined |= {str(getattr(node.target, "id", "")) for node in body if isinstance(node, ast.AnnAssign)}
            assert not name or name in defined  # pytest's plugin is a module


def test_no_file_names_the_machine_it_was_written_on() -> None:
    # Put together here, so that this file does not match itself. "someone" is the tests' made-up user.
    folders = ("work", "root", "opt", "Users", "home(?!/someone\\b)")
    machine = re.compile("|".join(rf"(?<![\w.~$}})\]-])/{folder}/[A-Za-z0-9]" for folder in folders))
    assert machine.search("see /" + "work/x") and machine.search("'/" + "home/me'")
    found = []
    for path in tracked():
        content = path.read_bytes()
        if b"\0" not in content and machine.search(content.decode(errors="replace")):
            found.append(str(path.relative_to(ROOT)))
    assert not found


def test_no_test_asks_for_the_date() -> None:
    """What fails today must fail tomorrow: what is tried in turns changes with the commit (`commits.py`)."""
    asking = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in sorted((ROOT / "tests").rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and node.attr in ("today", "now", "utcnow")
    ]
    assert asking == []
