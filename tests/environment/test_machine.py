"""The same machine means all that bits hang on; what was not recorded is not known to be the same."""

import copy
import importlib.util
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.checkout import ROOT

from paftbench.environment.machine import difference, differs, machine
from paftbench.experiment import load, plan
from paftbench.records.door import parse
from paftbench.records.environment import Environment
from paftbench.records.result import unmeasured
from paftbench.store.directory import TrialRecord

ENVIRONMENT: dict[str, Any] = {
    "versions": {"paftbench": "0.2", "torch": "2.14.1", "torchvision": "0.29.1", "transformers": None, "numpy": "2.4"},
    "python": "3.11.7", "platform": "Linux 6.1 x86_64", "cpu_capability": "AVX512", "cpus": 2, "threads": 1,
    "cuda": "13.0", "gpus": ["H200"],
    "processor": {"vendor": "GenuineIntel", "family": "6", "model": "207", "stepping": "2", "flags": "86d9",
                  "caches": "48K"},
    "libraries": {"blas": "MKL 2024.2", "onednn": "v3.12.0", "libc": "glibc 2.36"},
    "bits": {"convolution": "c6fc", "matmul": "24f5", "elementwise": "2fe8", "normal": "ee5b"},
    "switches": {"OMP_NUM_THREADS": "1"}, "git": {"sha": "abc", "dirty": False}, "argv": ["paftbench"],
}  # fmt: skip


def after(path: str, value: Any, device: str = "cpu") -> list[str]:
    """What differs from a record with one value changed."""
    other = copy.deepcopy(ENVIRONMENT)
    *parts, last = path.split(".")
    at = other
    for part in parts:
        at = at[part]
    at[last] = value
    return differs(machine(ENVIRONMENT, device), machine(other, device))


@pytest.mark.parametrize(
    "path",
    ["processor.vendor", "processor.family", "processor.model", "processor.stepping", "processor.flags",
     "processor.caches", "threads", "cpu_capability", "libraries.blas", "libraries.onednn", "libraries.libc",
     "bits.convolution", "bits.normal", "switches.ONEDNN_MAX_CPU_ISA", "switches.MKL_CBWR",
     "versions.torch", "versions.numpy"],
)  # fmt: skip
def test_another_value_of_anything_that_bits_hang_on_is_another_machine_and_named(path: str) -> None:
    assert after(path, "other") == [path]


def test_another_system_or_device_is_another_machine_and_gpus_count_where_they_compute() -> None:
    assert after("platform", "Darwin 23 arm64") == ["system", "machine"]
    assert after("gpus", ["B200"]) == [] and after("gpus", ["B200"], "cuda") == ["gpus"]
    assert after("cuda", "12.0", "cuda") == ["gpus"]
    assert differs(machine(ENVIRONMENT, "cpu"), machine(ENVIRONMENT, "cuda")) == ["device", "gpus"]


@pytest.mark.parametrize(
    ("path", "value"),
    [("platform", "Linux 6.9 x86_64"), ("python", "3.14.0"), ("cpus", 64), ("argv", []), ("git", None),
     ("switches.OMP_NUM_THREADS", "2"), ("switches.OMP_PROC_BIND", "true"), ("versions.paftbench", "9")],
)  # fmt: skip
def test_what_no_bit_hangs_on_leaves_the_machine_the_same(path: str, value: Any) -> None:
    assert after(path, value) == []


@pytest.mark.parametrize(
    "part", ["processor", "libraries", "bits", "switches", "versions", "threads", "cpu_capability"]
)
def test_a_record_without_a_part_is_not_known_to_be_of_the_same_machine(part: str) -> None:
    old = {key: value for key, value in ENVIRONMENT.items() if key != part}
    assert differs(machine(old, "cpu"), machine(ENVIRONMENT, "cpu")) == [part]
    assert differs(machine(old, "cpu"), machine(old, "cpu")) == [part]
    assert difference(machine(old, "cpu"), machine(ENVIRONMENT, "cpu")) == f"{part} was not recorded"
    assert difference(machine(ENVIRONMENT, "cpu"), machine(old, "cpu")) == f"{part} is not recorded"


def test_an_empty_or_a_foreign_record_is_unknown_and_no_traceback() -> None:
    for record in ({}, {"versions": "x", "switches": ["x"], "platform": 3, "processor": "x"}):
        assert "versions" in differs(machine(record, None), machine(ENVIRONMENT, "cpu"))


def test_the_difference_is_told_with_values_and_cut_where_all_differs() -> None:
    other = copy.deepcopy(ENVIRONMENT)
    other["switches"]["ONEDNN_MAX_CPU_ISA"] = "AVX2"
    other["bits"]["convolution"] = "89ad"
    then, now = machine(ENVIRONMENT, "cpu"), machine(other, "cpu")
    assert difference(then, then) == ""
    assert difference(then, now) == "switches.ONEDNN_MAX_CPU_ISA AVX2, was not set, bits.convolution 89ad, was c6fc"
    for key in other["processor"]:
        other["processor"][key] = "other"
    assert difference(then, machine(other, "cpu")).startswith("processor.vendor other, was GenuineIntel, ")
    assert difference(then, machine(other, "cpu")).endswith("processor.flags other, was 86d9, and 3 more")


def test_committed_results_are_of_one_machine() -> None:
    """`tools/keep.py` refuses trials of several, and names the trial and what differs."""
    path = ROOT / "tools" / "keep.py"
    spec = importlib.util.spec_from_file_location("keep", path)
    assert spec is not None and spec.loader is not None
    keep = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(keep)

    planned = plan(load("ci/quick"))[0].plan()

    def record(name: str, **changed: Any) -> TrialRecord:
        own = replace(planned, name=name)
        environment = parse(Environment, ENVIRONMENT | changed, name)
        result = replace(unmeasured(own, "crashed"), environment=environment)
        return TrialRecord(path=Path(name), planned=own, result=result)

    kept = keep.about("paftbench run small", [record("a"), record("b")])
    assert kept["environment"]["processor"] == ENVIRONMENT["processor"] and "argv" not in kept["environment"]
    with pytest.raises(ValueError, match="a is not known to be of the last trial's machine: threads 1, was 2"):
        keep.about("paftbench run small", [record("a", threads=2), record("b")])
