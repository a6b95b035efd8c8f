"""Result directories with one thing wrong, by the hundred: a right exit code, one line, no traceback, no hang."""

import re
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.fuzz_results import LOGS, RECORDS, Case, cases, finished

from paftbench.cli.main import exit_code

SEED = 9
LIMIT_S = 120.0  # of a machine that others use, too
READING = {
    "table": ["table", "{dir}"],
    "table --by": ["table", "{dir}", "--by", "mitigation", "--json"],
    "status": ["status", "{dir}"],
    "export": ["export", "{dir}", "--to", "{out}/x.csv"],
    "export --steps": ["export", "{dir}", "--to", "{out}/x.json", "--steps"],
    "table --injections": ["table", "{dir}", "--injections"],
    "check": ["check", "{folder}/small.yaml", "--out", "{folder}", "--no-run", "--baseline", "{folder}/b.json"],
}
DRAWING = {
    "check exact": [*READING["check"], "--mode", "exact"],
    "export parquet": ["export", "{dir}", "--to", "{out}/x.parquet"],
    "plot": ["plot", "{dir}"],
    "plot all": ["plot", "{dir}", "--figure", "all"],
    "report": ["report", "{dir}"],
}
OF_A_LOG = {"steps.jsonl": ("export --steps",), "injections.jsonl": ("table --injections",)}
_ACTS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\ud800-\udfff]")


class Hung(BaseException):
    """A command took too long; no Exception, so that no command takes it for a refusal of its own."""


@contextmanager
def limit(seconds: float) -> Iterator[None]:
    def ring(*_: object) -> None:
        raise Hung

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = finished(tmp_path_factory.mktemp("whole"))
    (folder / "outside").mkdir()
    (folder / "outside" / "file.json").write_text('{"schema": 1}\n')
    return folder


def content(directory: Path) -> dict[str, bytes | None]:
    paths = sorted(directory.rglob("*"))
    return {str(path.relative_to(directory)): path.read_bytes() if path.is_file() else None for path in paths}


def fuzz(whole: Path, to: Path, case: Case, commands: dict[str, list[str]], capsys: pytest.CaptureFixture[str]) -> None:
    folder = Path(shutil.copytree(whole, to))
    case.spoil(folder)
    outside, kept = content(folder / "outside"), [path for path in (folder / "small").glob("*/*.json*")]
    for name, parts in commands.items():
        out = folder / "out"
        out.mkdir(exist_ok=True)
        arguments = [part.format(dir=folder / "small", out=out, folder=folder) for part in parts]
        capsys.readouterr()
        with limit(LIMIT_S):
            code = exit_code(arguments)
        printed, err = capsys.readouterr()
        said = f"{case.name}, {name}: exit {code}, {err!r}"
        assert code in ((0, 1, 2, 3) if name.startswith("check") else (0, 2)), said
        assert not _ACTS.search(printed + err) and "Warning" not in err, said
        if code == 2:
            *before, last = err.splitlines()
            assert printed == "" and last.startswith("paftbench: error: "), said
            assert all(line.startswith(("not drawn: ", "paftbench: warning: ")) for line in before), said
        if case.damaged and (case.damaged not in LOGS or name in OF_A_LOG[case.damaged]):
            assert code == 2 and case.damaged in err, said
    assert content(folder / "outside") == outside and all(path.exists() or path.is_symlink() for path in kept)
    shutil.rmtree(folder)


def test_an_undamaged_sweep_is_read_by_all(whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sound = Case("sound", lambda folder: None)
    fuzz(whole, tmp_path / "x", sound, READING, capsys)


@pytest.mark.timeout(900)  # ten seconds, of a machine that nobody else uses
def test_every_sixth_of_hundreds_of_damaged_sweeps(
    whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    every = cases(SEED)
    assert len(every) >= 200
    for number, case in enumerate(every[::6]):
        fuzz(whole, tmp_path / f"{number}", case, READING, capsys)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(2))
def test_hundreds_of_damaged_sweeps(seed: int, whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What is refused is refused by all; of what is read each is drawn in one way, since figures take seconds."""
    names = list(DRAWING)
    for number, case in enumerate(cases(seed)):
        drawn = names if case.damaged in RECORDS else names[number % len(names) :][:1]
        fuzz(whole, tmp_path / f"{number}", case, READING | {name: DRAWING[name] for name in drawn}, capsys)
