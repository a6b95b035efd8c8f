"""A mutation fuzz of experiment files: planned, or refused in one line; never a traceback, a hang, or a wrong code."""

import io
import resource
import time
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest
from support import mutated_experiments
from support.plugin_files import plugins_kept

from paftbench.cli.main import exit_code
from paftbench.plugins import load_file

FILE_S = 20  # of CPU, on a slow and busy machine; most take a tenth of a second
GROWTH_KB = 1024 * 1024
LONGEST_LINE = 2000


@pytest.fixture
def registered(tmp_path: Path) -> Iterator[None]:
    """The plugins that one of the files uses."""
    (tmp_path / "fuzzed.py").write_text(mutated_experiments.PLUGINS)
    with plugins_kept():
        load_file(tmp_path / "fuzzed.py")
        yield


def complaint(number: int, texts: list[str], tmp_path: Path) -> str:
    """What is wrong with how a mutated file is planned; empty where nothing is."""
    text, overrides = mutated_experiments.mutated(number, texts)
    path = tmp_path / "mutated.yaml"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    out, err, start = io.StringIO(), io.StringIO(), time.process_time()
    try:
        with redirect_stdout(out), redirect_stderr(err):
            code = exit_code(["run", str(path), "-n", "--out", str(tmp_path / "out"), *overrides])
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:300]}"
    if (took := time.process_time() - start) > FILE_S:
        return f"took {took:.1f} s of CPU"
    lines = err.getvalue().splitlines()
    if code == 2:
        one = len(lines) == 1 and lines[0].startswith("paftbench: error: ") and len(lines[0]) <= LONGEST_LINE
        return "" if one and not out.getvalue() else f"exit 2 says {lines!r:.500}"
    if code != 0 or not out.getvalue().startswith("id "):
        return f"exit {code} says {out.getvalue()[:200]!r} and {lines!r:.300}"
    odd = [line for line in lines[:-1] if not line.startswith("paftbench: warning: ")]
    return f"a plan says {odd!r:.300}" if odd else ""


def fuzz(numbers: range, tmp_path: Path) -> None:
    """Plan these files; fails with every complaint."""
    texts = mutated_experiments.originals()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    found = [f"file {number}: {wrong}" for number in numbers if (wrong := complaint(number, texts, tmp_path))]
    assert not found, "\n".join(found)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < GROWTH_KB
    assert not (tmp_path / "out").exists()


def test_mutated_experiment_files_are_planned_or_refused_in_one_line(registered: None, tmp_path: Path) -> None:
    fuzz(range(40), tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("part", range(8))
def test_a_thousand_mutated_experiment_files_are_planned_or_refused_in_one_line(
    part: int, registered: None, tmp_path: Path
) -> None:
    fuzz(range(125 * part, 125 * (part + 1)), tmp_path)
