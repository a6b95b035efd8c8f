"""The plugin as pytest loads it: the fixture, no silent pass, and a stranger's project."""

import os
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from support.checkout import ROOT

FOREIGN = ROOT / "tests" / "foreign"
CASES = """
import gc
import weakref

import pytest
import torch
import torch.distributed as dist

import paftbench

FLIPS = paftbench.Fault("bit_flip", degree=0.05, bits="mantissa")
NEVER = paftbench.Fault("bit_flip", degree=1e-12)

def build():
    model = torch.nn.Linear(4, 1)
    return model, torch.optim.SGD(model.parameters(), lr=0.1)

def train(ddp, optimizer):
    for step in range(20):
        x = torch.randn(8, 4)
        loss = (ddp(x) - x.sum(1, keepdim=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss.item()

def test_sound(faulty_ranks):
    ranks = faulty_ranks(world_size=3)
    golden = ranks.run(train, build)
    run = ranks.run(train, build, faults=[FLIPS], mitigations=[paftbench.Mitigation("paft_sync", period=5)])
    run.assert_struck(at_least=5)
    run.assert_replicas_agree()
    run.assert_converges_like(golden, margin=0.5)

def test_makes_no_ranks(faulty_ranks):
    pass

def test_runs_nothing(faulty_ranks):
    faulty_ranks(world_size=2)

def test_is_never_struck(faulty_ranks):
    faulty_ranks(2).run(train, build, faults=[NEVER])

def test_may_be_never_struck(faulty_ranks):
    faulty_ranks(2).run(train, build, faults=[NEVER], allow_no_strike=True).assert_replicas_agree()

def test_goes_past_ddp(faulty_ranks):
    faulty_ranks(2).run(lambda ddp, optimizer: train(ddp.module, optimizer), build)

@pytest.fixture
def ranks(faulty_ranks):
    return faulty_ranks(2)

def test_indirectly_runs_nothing(ranks):
    pass

def test_indirectly_runs(ranks):
    ranks.run(train, build)

def test_fails_by_itself(faulty_ranks):
    assert 0, "its own reason"

def test_skips_in_a_rank(faulty_ranks):
    faulty_ranks(2).run(lambda ddp, optimizer: pytest.skip("no data here"), build)

@pytest.mark.xfail(strict=True)
def test_is_expected_to_run_nothing(faulty_ranks):
    pass

def test_fails_in_a_rank(faulty_ranks):
    def failing(ddp, optimizer):
        curve = list(train(ddp, optimizer))
        assert dist.get_rank() != 1, "rank 1 dislikes it"
        return curve

    faulty_ranks(3).run(failing, build)

def test_expects_a_rank_to_fail(faulty_ranks):
    def failing(ddp, optimizer):
        raise OverflowError("as it should")

    with pytest.raises(paftbench.testing.RankError, match="as it should"):
        faulty_ranks(2).run(failing, build, faults=[FLIPS])

released = []

def test_lets_go(faulty_ranks):
    ranks = faulty_ranks(2)
    ranks.run(train, build)
    released.append(weakref.ref(ranks))

def test_has_let_go():
    gc.collect()
    assert [kept() for kept in released] == [None]

attempts = []

def test_is_struck_again(faulty_ranks):
    attempts.append(0)
    faulty_ranks(2).run(train, build, faults=[NEVER if len(attempts) == 1 else FLIPS])

def test_runs_nothing_again(faulty_ranks):
    if not hasattr(test_runs_nothing_again, "before"):
        test_runs_nothing_again.before = True
        faulty_ranks(2).run(train, build)
        assert 0, "the first time"
"""
CONFTEST = """
from _pytest.runner import runtestprotocol

def pytest_runtest_protocol(item, nextitem):  # runs a test twice, as plugins for flaky tests do
    if item.name.endswith("again"):
        runtestprotocol(item, nextitem=nextitem, log=False)
        item._initrequest()
"""


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What pytest says of the test file above, and of the guide's first example."""
    folder = tmp_path_factory.mktemp("cases")
    (folder / "test_cases.py").write_text(CASES)
    (folder / "conftest.py").write_text(CONFTEST)
    guide = re.search(r"```python\n(.*?)```", (ROOT / "docs" / "pytest.md").read_text(), re.DOTALL)
    assert guide is not None
    (folder / "test_guide.py").write_text(guide.group(1))
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-rA", "-W", "error"]
    ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, env={**os.environ, "COLUMNS": "160"})
    assert ran.returncode == 1, ran.stdout + ran.stderr
    return ran.stdout


def foreign(python: str, project: Path, *options: str) -> str:
    """What pytest says of the foreign project, started as its own developer would."""
    ran = subprocess.run(
        [python, "-m", "pytest", "-p", "no:cacheprovider", "-rA", *options],
        cwd=project,
        capture_output=True,
        text=True,
        env={**os.environ, "COLUMNS": "120"},
    )
    assert ran.returncode == 1, ran.stdout + ran.stderr
    return ran.stdout


def check_foreign(said: str) -> None:
    """The sound test passed, the other failed with its numbers."""
    assert "PASSED tests/test_training.py::test_survives_bit_flips\n" in said
    assert "FAILED tests/test_training.py::test_survives_noise" in said
    for part in (
        "the run does not converge like the golden run: mean of ranks is 0.0",
        "mean of the last 1 of 8 points, lower is better; margin 0.02",
        "faults: gaussian_noise(degree=0.1",
        "mitigations: paft_sync(",
        "at the end: divergence 0, 8 synchronisations",
    ):
        assert part in said, f"{part!r} is missing in\n{said}"
    # The last thing that the traceback shows is the stranger's own line.
    assert ">       run.assert_converges_like(golden, margin=0.02)" in said


def test_foreign_project_passes_and_fails_as_it_should() -> None:
    said = foreign(sys.executable, FOREIGN, "-m", "not torchrun")
    assert "1 failed, 1 passed" in said
    check_foreign(said)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_foreign_project_passes_and_fails_in_a_fresh_environment(tmp_path: Path) -> None:
    """From nothing but our wheel and the index, minutes for its downloads; `-s` shows what pytest said there."""
    source = tmp_path / "source"
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("not a git checkout")
    for name in listed.stdout.split("\0"):
        if name and (ROOT / name).is_file():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, source / name)
    python = str(tmp_path / "fresh" / "bin" / "python")
    wheels = tmp_path / "wheels"
    for command in (
        [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(wheels), str(source)],
        [sys.executable, "-m", "venv", str(tmp_path / "fresh")],
    ):
        subprocess.run(command, check=True)
    (wheel,) = wheels.glob("paftbench-*.whl")
    install = [python, "-m", "pip", "install", "--quiet", "-c", str(ROOT / "constraints.txt"), str(wheel), "pytest"]
    subprocess.run(install, check=True)
    try:
        said = foreign(python, Path(shutil.copytree(FOREIGN, tmp_path / "tides")))
    finally:
        shutil.rmtree(tmp_path / "fresh")
    print(said)
    assert "1 failed, 2 passed" in said
    check_foreign(said)


def test_plugin_imports_nothing_heavy() -> None:
    look = """
        import sys, pytest
        import paftbench.pytest_plugin
        print(*(name for name in ("torch", "numpy", "pydantic", "yaml", "pandas") if name in sys.modules))
    """
    code = [sys.executable, "-c", textwrap.dedent(look)]
    assert subprocess.run(code, capture_output=True, text=True, check=True).stdout == "\n"


def test_plugin_loads_beside_an_old_pytest() -> None:
    load = """
        import pluggy, pytest
        marked = pluggy.HookimplMarker.__call__

        def of_pluggy_1_0(self, function=None, hookwrapper=False, optionalhook=False, tryfirst=False, trylast=False):
            return marked(self, function, hookwrapper, optionalhook, tryfirst, trylast)

        pluggy.HookimplMarker.__call__ = of_pluggy_1_0
        import paftbench.pytest_plugin
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(load)], check=True)


def test_first_example_of_the_guide_passes(cases: str) -> None:
    assert "PASSED test_guide.py::test_survives_bit_flips" in cases, cases


@pytest.mark.parametrize(
    "name, outcome",
    [
        ("sound", "PASSED"),
        ("may_be_never_struck", "PASSED"),
        ("indirectly_runs", "PASSED"),
        ("is_expected_to_run_nothing", "XFAIL"),
        ("expects_a_rank_to_fail", "PASSED"),
        ("is_struck_again", "PASSED"),
        ("has_let_go", "PASSED"),
    ],
)
def test_that_proves_something_keeps_its_outcome(cases: str, name: str, outcome: str) -> None:
    assert re.search(rf"^{outcome} test_cases.py::test_{name}\b", cases, re.MULTILINE), cases


@pytest.mark.parametrize(
    "name, reason",
    [
        ("makes_no_ranks", "faulty_ranks was asked for, but no ranks were made"),
        ("runs_nothing", "faulty_ranks was asked for, but nothing was run under it"),
        ("indirectly_runs_nothing", "faulty_ranks was asked for, but nothing was run under it"),
        ("runs_nothing_again", "faulty_ranks was asked for, but no ranks were made"),
        ("is_never_struck", "run 0: no strike changed a bit: this run proves nothing"),
        ("goes_past_ddp", "RankError: rank 0 of 2 failed"),
        ("fails_by_itself", "AssertionError: its own reason"),
        ("fails_in_a_rank", "RankError: rank 1 of 3 failed"),
    ],
)
def test_that_proves_nothing_fails_and_says_why(cases: str, name: str, reason: str) -> None:
    assert re.search(rf"^FAILED test_cases.py::test_{name} - .*{re.escape(reason)}", cases, re.MULTILINE), cases


def test_skipped_in_a_rank_is_skipped(cases: str) -> None:
    assert re.search(r"^SKIPPED .*no data here", cases, re.MULTILINE), cases


def test_error_in_a_rank_shows_the_users_line_and_none_of_ours(cases: str) -> None:
    shown = cases[cases.index("test_fails_in_a_rank ___") :]
    assert '>       assert dist.get_rank() != 1, "rank 1 dislikes it"' in shown
    assert "failed in train, after 20 completed steps: AssertionError: rank 1 dislikes it" in shown
    assert "thread_ranks.py:" not in shown.partition("short test summary")[0]


def test_hook_that_was_never_called_is_named(cases: str) -> None:
    assert "the hook was never called: no gradient went through the attached DDP model" in cases
