"""No machine is special: promises hold where libraries compute as on other processors, and bits are not claimed there.

The variables are read once, so each setting is a process of its own. `tools/processor_study.py` has more of them.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from support import on_processor
from support.checkout import TESTS
from support.small_gate import prepare

from paftbench.environment.machine import differs, machine
from paftbench.environment.record import environment

SETTINGS: Mapping[str, Mapping[str, str]] = {
    "all": {"ONEDNN_MAX_CPU_ISA": "SSE41", "MKL_CBWR": "COMPATIBLE", "ATEN_CPU_CAPABILITY": "default"},
    "AVX2": {"ONEDNN_MAX_CPU_ISA": "AVX2", "ATEN_CPU_CAPABILITY": "avx2"},
    "SSE41": {"ONEDNN_MAX_CPU_ISA": "SSE41"},
    "COMPATIBLE": {"MKL_CBWR": "COMPATIBLE", "ATEN_CPU_CAPABILITY": "default"},
}


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepare(tmp_path_factory.mktemp("here"))


@pytest.fixture(scope="module")
def trained() -> dict[str, Any]:
    return on_processor.trained()


@pytest.mark.parametrize("setting", ["all", *(pytest.param(name, marks=pytest.mark.slow) for name in [*SETTINGS][1:])])
def test_promises_hold_on_another_processor_and_its_bits_are_not_held_against_it(
    setting: str, here: Path, trained: dict[str, Any], tmp_path: Path
) -> None:
    """The contract of faults, the bits of plain torch, the same strikes; another machine, named, and inconclusive."""
    folder = shutil.copytree(here, tmp_path / "there")
    variables = SETTINGS[setting]
    own = {**os.environ, **variables, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(TESTS)}
    done = subprocess.run(
        [sys.executable, "-m", "support.on_processor", folder], env=own, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr[-3000:]
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["broken"] == []
    assert told["trained"] == trained and trained["same"] and trained["strikes"] > 100
    assert told["noise"] == pytest.approx(on_processor.noise(), abs=1e-5)
    changed = {f"switches.{name}" for name, value in variables.items() if os.environ.get(name) != value}
    named = differs(machine(environment(), "cpu"), machine(told["environment"], "cpu"))
    assert changed <= set(named)
    assert (told["exact"], told["bound"]) == (3 if changed else 0, 0), done.stdout
