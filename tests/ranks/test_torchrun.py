"""The torchrun command itself, on whole trials: the same bits and records as one process."""

from pathlib import Path

import pytest

from paftbench.cli.main import exit_code
from paftbench.records.result import Result
from paftbench.store.directory import TrialRecord, read_results

EXPERIMENT = """
schema: 1
name: same
base:
  workload: {name: resnet, size: nano, data: digits}
  batch_per_rank: 8
  steps: 30
  exact: true
  eval_every: 30
  faults:
    - {name: noise, model: gaussian_noise, degree: 1e-3}
    - {name: flips, model: bit_flip, degree: 1e-3, bits: mantissa, site: contribution}
    - {name: weight, model: bit_flip, degree: 1e-4, bits: mantissa, site: parameter, ranks: {random: 1}}
    - {name: moment, model: gaussian_noise, degree: 1e-4, site: optimizer_state}
grids:
  - name: two
    set: {world_size: 2, mitigations: [{name: paft_sync, period: 7, state: all}]}
    axes: {placement: [virtual, torchrun]}
  - name: three
    set: {world_size: 3, mitigations: [{name: paft_dyn, rule: consensus, period: 3, overlap: true, budget: 0.3}]}
    axes: {placement: [virtual, torchrun]}
  - name: four
    set: {world_size: 4, mitigations: [{name: paft_dyn, rule: code, period: 3}]}
    axes: {placement: [virtual, torchrun]}
  - name: hybrid
    set: {world_size: 4, placement: torchrun, procs: 2, mitigations: [{name: paft_dyn, rule: code, period: 3}]}
seeds: 1
golden: false
"""


@pytest.mark.parametrize(
    "grid", ["two", "hybrid", *(pytest.param(grid, marks=pytest.mark.slow) for grid in ("three", "four"))]
)
def test_torchrun_gives_the_bits_and_strikes_of_one_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, grid: str
) -> None:
    """Also where the temporary directory's path leaves no room for sockets."""
    long = tmp_path / "of_a_job_on_a_cluster" / ("x" * 120)
    long.mkdir(parents=True)
    monkeypatch.setenv("TMPDIR", str(long))
    (tmp_path / "same.yaml").write_text(EXPERIMENT)
    chosen = "hybrid or four and virtual" if grid == "hybrid" else grid
    assert exit_code(["run", str(tmp_path / "same.yaml"), "--out", str(tmp_path), "-j", "2", "-k", chosen]) == 0
    records = read_results(tmp_path / "same")
    trials = {(record.planned.grid, record.planned.trial.placement): record for record in records}
    whole, apart = trials["four" if grid == "hybrid" else grid, "virtual"], trials[grid, "torchrun"]
    assert (result(whole).strikes.landed or 0) > 0 and (result(whole).mitigation.syncs or 0) >= 3
    for key in ("params_sha256", "strikes", "metric", "mitigation", "gradient_bytes"):
        assert getattr(result(apart), key) == getattr(result(whole), key), key
    assert any(row.decision for row in whole.steps()) == (grid != "two")
    assert text(apart.path, "injections.jsonl") == text(whole.path, "injections.jsonl")
    for key in ("loss", "decision"):
        assert [getattr(row, key) for row in apart.steps()] == [getattr(row, key) for row in whole.steps()], key


def result(record: TrialRecord) -> Result:
    assert record.result is not None
    return record.result


def text(directory: Path, name: str) -> str:
    return (directory / name).read_text()
