"""The injection log in numbers."""

from pathlib import Path
from typing import Any

import pytest
from support.synthetic_results import FLIPS, RESNET, spec, write_trial

from paftbench.analysis.injections import injections_rows


@pytest.mark.parametrize(
    ("bits", "kind"), [([0, 22], "mantissa"), ([23, 30], "exponent"), ([22, 31], "several"), (31, "sign")]
)
def test_several_bits_of_one_element_are_of_their_class_or_of_several(tmp_path: Path, bits: Any, kind: str) -> None:
    row = {
        "step": 0, "fault": "flips", "rank": 0, "site": "result", "parameter": "fc.bias", "landed": True, "bit": bits,
        "bits_before": "0x3f800000", "value_before": 1.0, "value_after": 2.0,
    }  # fmt: skip
    trial = spec(RESNET, steps=1, seed=0, faults=[{**FLIPS, "degree": 0.5, "unit": "per_bit"}], mitigations=[])
    write_trial(tmp_path, trial, grid="flips", labels={}, injections=[row])
    assert [found["value"] for found in injections_rows(tmp_path) if found["by"] == "bit class"] == [kind]
