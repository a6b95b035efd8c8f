"""The environment says what produced a result and nothing about whose machine it was."""

import json
import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest
from support.checkout import ROOT

from paftbench.environment.dispatch import bits
from paftbench.environment.processor import processor, switches
from paftbench.environment.record import environment

INTEL = "processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 207\nmodel name\t: Intel(R) Xeon(R)\nstepping\t: 2\ncpu MHz\t\t: 2100.0\nflags\t\t: fpu avx2\n\n"  # noqa: E501
ARM = "processor\t: 0\nBogoMIPS\t: 50.00\nFeatures\t: fp asimd sve\nCPU implementer\t: 0x41\nCPU architecture: 8\nCPU variant\t: 0x1\nCPU part\t: 0xd40\nCPU revision\t: 1\n\n"  # noqa: E501


def test_versions_and_processor_are_recorded_without_host_or_directories(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["/home/someone/bin/paftbench", "run", "quickstart", "--out=/home/someone/runs"])
    monkeypatch.setenv("MKL_VERBOSE_OUTPUT_FILE", "/home/someone/log")
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX2")  # read by the library long before; here only recorded
    environment.cache_clear()
    record = environment()
    environment.cache_clear()
    assert record["versions"]["torch"] and record["python"] == platform.python_version()
    assert record["cpu_capability"] and record["threads"] >= 1
    assert record["argv"] == ["paftbench", "run", "quickstart", "--out=runs"]
    assert record["processor"] == processor() and record["processor"] is not None
    assert record["libraries"]["blas"] and "onednn" in record["libraries"]
    assert record["switches"]["ONEDNN_MAX_CPU_ISA"] == "AVX2" and "MKL_VERBOSE_OUTPUT_FILE" not in record["switches"]
    assert set(record) == {
        "versions", "python", "platform", "processor", "cpu_capability", "libraries", "bits", "switches", "cpus",
        "threads", "cuda", "gpus", "git", "argv",
    }  # fmt: skip
    text = json.dumps(record)
    assert "someone" not in text and os.path.expanduser("~/") not in text and platform.node() not in text.split('"')


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="no clone")
def test_a_result_made_in_a_clone_names_its_commit() -> None:
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert environment()["git"]["sha"] == head.strip()


@pytest.mark.parametrize(
    ("text", "known"),
    [
        (
            INTEL,
            {"vendor": "GenuineIntel", "family": "6", "model": "207", "stepping": "2", "name": "Intel(R) Xeon(R)"},
        ),
        (INTEL.replace("207", "85") + INTEL, {"model": "85, 207"}),
        (ARM, {"vendor": "0x41", "family": "8", "model": "0xd40", "variant": "0x1", "stepping": "1"}),
        (ARM + ARM.replace("0xd40", "0xd05"), {"model": "0xd40, 0xd05"}),
    ],
)
def test_the_processor_is_read_as_linux_tells_it_on_x86_and_on_arm(
    text: str, known: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "cpuinfo").write_text(text)
    for name, size in (("index0", "48K"), ("index2", "2048K")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "size").write_text(f"{size}\n")
    found = processor(tmp_path / "cpuinfo", tmp_path)
    assert found is not None and found.items() >= known.items()
    assert found["caches"] == "48K 2048K" and len(found["flags"]) == 16
    (tmp_path / "cpuinfo").write_text(text.replace("avx2", "avx2 amx_bf16").replace("sve", "sve sve2"))
    other = processor(tmp_path / "cpuinfo", tmp_path)
    assert other is not None and {key for key in found if found[key] != other[key]} == {"flags"}
    (tmp_path / "cpuinfo").write_text("processor\t: 0\nBogoMIPS\t: 50.00\n")
    assert processor(tmp_path / "cpuinfo", tmp_path) is None
    elsewhere = processor(tmp_path / "no-such-file", tmp_path)
    assert elsewhere is None or set(elsewhere) == {"name"}


def test_every_variable_that_chooses_code_is_recorded_and_no_other() -> None:
    chosen = {
        "ONEDNN_MAX_CPU_ISA": "AVX2", "DNNL_MAX_CPU_ISA": "SSE41", "ONEDNN_DEFAULT_FPMATH_MODE": "BF16",
        "MKL_CBWR": "COMPATIBLE", "MKL_ENABLE_INSTRUCTIONS": "AVX2", "MKL_DEBUG_CPU_TYPE": "5",
        "ATEN_CPU_CAPABILITY": "default", "OPENBLAS_CORETYPE": "Haswell", "OMP_NUM_THREADS": "1",
        "TORCH_MKLDNN_MATMUL_MIN_DIM": "1", "NVIDIA_TF32_OVERRIDE": "1", "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
    }  # fmt: skip
    others = {
        "HOME": "/home/someone", "MKLROOT": "/usr/intel", "ONEDNN_VERBOSE": "1", "ONEDNN_JIT_DUMP": "1",
        "MKL_VERBOSE": "1", "OMP_DISPLAY_ENV": "true", "TORCH_HOME": "/home/someone", "TOKEN": "x",
    }  # fmt: skip
    assert switches({**chosen, **others}) == chosen


def test_what_kernels_give_is_the_same_when_asked_again_and_touches_no_generator() -> None:
    import torch

    before = torch.get_rng_state()
    assert bits() == bits() and set(bits()) == {"convolution", "matmul", "elementwise", "normal"}
    assert torch.equal(torch.get_rng_state(), before)


def test_arguments_in_another_encoding_are_recorded_as_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """`LC_ALL=C` without UTF-8 mode, and names that are not UTF-8, give halves of surrogate pairs."""
    monkeypatch.setattr(sys, "argv", ["paftbench", "run", "--out", "r\udcc3\udca9", "x/\udce9", "/a/\udcc3\udca9", "é"])
    environment.cache_clear()
    recorded = environment()["argv"]
    environment.cache_clear()
    assert recorded == ["paftbench", "run", "--out", "ré", r"x/\xe9", "é", "é"]
