"""The notebooks run from top to bottom, from any directory, without a warning, and are kept without outputs."""

import json
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient
from support.checkout import ROOT

FOLDER = ROOT / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
EXPECTED = {
    "first_look_at_a_result": ["same strikes in both trials: True"],
    "reading_a_sweep": ["report.html"],
    "write_your_own_fault_model": [
        "34 promises hold, 0 broken, 0 not tried", "BROKEN  it neither uses nor moves a global random generator",
    ],
}  # fmt: skip

SLOW = ("write_your_own_fault_model",)  # it tries every promise, twice; what it writes is tried from the guide


def read(path: Path) -> Any:
    return nbformat.read(path, as_version=4)


def test_the_notebooks_are_there_and_introduced() -> None:
    assert [path.stem for path in NOTEBOOKS] == [
        "first_look_at_a_result",
        "reading_a_sweep",
        "write_your_own_fault_model",
    ]
    assert all(f"]({path.name})" in (FOLDER / "README.md").read_text() for path in NOTEBOOKS)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_kept_without_outputs(path: Path) -> None:
    nbformat.validate(read(path))
    for cell in json.loads(path.read_text())["cells"]:
        assert cell["cell_type"] == "markdown" or (cell["outputs"], cell["execution_count"]) == ([], None)
    assert read(path).metadata.kernelspec.name == "python3"


@pytest.mark.timeout(600)  # seconds, unless others use the machine
@pytest.mark.parametrize(
    "path",
    [pytest.param(path, marks=pytest.mark.slow if path.stem in SLOW else (), id=path.stem) for path in NOTEBOOKS],
)
def test_a_notebook_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR", "IPYTHONDIR", "TMPDIR"):
        (tmp_path / name).mkdir()
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.setenv("MPLBACKEND", "module://matplotlib_inline.backend_inline")
    notebook = read(path)
    strict = nbformat.v4.new_code_cell("import warnings\nwarnings.simplefilter('error')")
    notebook.cells.insert(0, strict)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    NotebookClient(notebook, timeout=580, resources={"metadata": {"path": str(elsewhere)}}).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    assert not [output for output in outputs if output.get("name") == "stderr"]
    assert any("image/png" in output.get("data", {}) for output in outputs)
    assert any("text/html" in output.get("data", {}) for output in outputs)
    assert list(elsewhere.iterdir()) == []
    said = "".join(output.get("text", "") for output in outputs)
    assert all(text in said for text in EXPECTED[path.stem])


def test_the_fault_model_that_is_written_is_that_of_the_guide() -> None:
    guide = (FOLDER.parent / "fault_models" / "README.md").read_text()
    example = guide.split("```python\n")[1].split("```")[0]
    cells = read(FOLDER / "write_your_own_fault_model.ipynb").cells
    assert sum(example in cell.source for cell in cells) == 1
