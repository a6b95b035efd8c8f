"""What is built from the repository: a source distribution, a wheel, and what both are worth outside a clone."""

import os
import resource
import shutil
import subprocess
import sys
import tarfile
import time
import venv
import zipfile
from pathlib import Path

import pytest
from support.checkout import ROOT

LIGHT_S = 0.5
HEAVY = ("torch", "pandas", "matplotlib", "transformers", "scipy", "sklearn", "pydantic")


def tracked() -> list[Path]:
    try:
        listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("not a git checkout")
    return [Path(name) for name in listed.split("\0") if name and (ROOT / name).is_file()]


def build(what: str, source: Path, out: Path) -> Path:
    """A distribution by setuptools itself: no network, no environment of its own."""
    out.mkdir(exist_ok=True)
    code = f"from setuptools import build_meta; build_meta.build_{what}({str(out)!r})"
    done = subprocess.run([sys.executable, "-c", code], cwd=source, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    (built,) = out.iterdir()
    return built


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy of what git tracks: a build leaves folders behind."""
    folder = tmp_path_factory.mktemp("sdist")
    for path in tracked():
        (folder / "source" / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / path, folder / "source" / path)
    return build("sdist", folder / "source", folder / "out")


@pytest.fixture(scope="module")
def wheel(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from the unpacked source distribution, as an installer does."""
    folder = tmp_path_factory.mktemp("wheel")
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    (source,) = folder.iterdir()
    return build("wheel", source, folder / "out")


@pytest.fixture(scope="module")
def site(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel installed into a folder, which comes before the checkout on the path."""
    folder = tmp_path_factory.mktemp("site")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--target", str(folder)]
    subprocess.run([*pip, str(wheel)], check=True)
    return folder


def test_the_source_distribution_holds_what_the_repository_holds(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        held = {Path(*Path(name).parts[1:]) for name in archive.getnames()}
    assert set(tracked()) - held == set()


def test_the_wheel_holds_the_code_and_its_data_and_nothing_else(wheel: Path) -> None:
    held = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    installed = {
        "paftbench": "paftbench",
        "fault_models": "paftbench/fault_models",
        "experiments": "paftbench/experiments",
    }
    wanted = {
        str(Path(installed[path.parts[0]], *path.parts[1:]))
        for path in tracked()
        if path.parts[0] in installed and path.suffix in (".py", ".yaml")
    }
    assert wanted <= held
    others = {name for name in held if not name.endswith((".py", ".yaml"))}
    assert "paftbench/py.typed" in others
    assert {name for name in others if not name.startswith(("paftbench/analysis/", "paftbench/paper/"))} == {
        "paftbench/py.typed"
    }
    assert {name.split("/")[0] for name in held} == {"paftbench"}
    assert not {name for name in held if "/test_" in name or name.endswith((".ipynb", ".pyc"))}


def outside(site: Path, folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, "PYTHONPATH": str(site)}
    return subprocess.run([sys.executable, *arguments], cwd=folder, env=environment, capture_output=True, text=True)


def test_the_wheel_works_outside_a_clone(site: Path, tmp_path: Path) -> None:
    names = "paftbench, paftbench.fault_models, paftbench.experiments"
    imports = f"import {names}\nfor module in ({names}): print(module.__file__)"
    for folder in ("experiments", "fault_models"):  # a project of the user's may have some of its own
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "__init__.py").touch()
    files = outside(site, tmp_path, "-c", imports).stdout.split()
    assert len(files) == 3 and all(file.startswith(str(site)) for file in files)
    command = ("-m", "paftbench.cli.main")
    listed = outside(site, tmp_path, *command, "ls", "experiments")
    names = {line.split()[0] for line in listed.stdout.splitlines()}
    assert listed.returncode == 0 and {"quickstart", "core/resnet"} <= names
    planned = outside(site, tmp_path, *command, "run", "quickstart", "-n")
    assert planned.returncode == 0 and "missing" in planned.stdout, planned.stderr
    assert {path.name for path in tmp_path.iterdir()} == {"experiments", "fault_models"}
    assert (site / "bin" / "paftbench").is_file()


def spent(*command: str) -> tuple[float, str]:
    """CPU seconds that a command takes, the least of three, and what it printed."""
    least, text = float("inf"), ""
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        least = min(least, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return least, text


def test_importing_the_package_and_asking_for_help_cost_less_than_half_a_second_and_no_heavy_import() -> None:
    told = f"import sys; print([name for name in {HEAVY!r} if name in sys.modules])"
    seconds, text = spent(sys.executable, "-c", f"import paftbench; {told}")
    assert text.strip() == "[]" and seconds < LIGHT_S
    help_text = f"from paftbench.cli.main import exit_code; exit_code(['--help']); {told}"
    seconds, text = spent(sys.executable, "-c", help_text)
    assert text.strip().endswith("[]") and "verify" in text and seconds < LIGHT_S


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_fresh_environment_installs_the_wheel_and_runs_the_quickstart(wheel: Path, tmp_path: Path) -> None:
    """Downloads the dependencies: some GB and minutes."""
    home = tmp_path / "venv"
    venv.create(home, with_pip=True)
    try:
        pip = [str(home / "bin" / "python"), "-m", "pip", "install", "--quiet"]
        subprocess.run([*pip, "-c", str(ROOT / "constraints.txt"), str(wheel)], check=True)
        own = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
        place = tmp_path / "elsewhere"
        place.mkdir()
        for arguments in (["doctor"], ["verify", "--fast", "bit_flip"], ["run", "quickstart"]):
            began = time.monotonic()
            command = [str(home / "bin" / "paftbench"), *arguments]
            done = subprocess.run(command, cwd=place, env=own, capture_output=True, text=True)
            print(f"{' '.join(arguments)}: {time.monotonic() - began:.0f} s\n{done.stdout[-1500:]}")
            assert done.returncode == 0, done.stderr[-3000:]
        assert len(list((place / "results" / "runs" / "quickstart").glob("*/result.json"))) > 0
    finally:
        shutil.rmtree(home)
