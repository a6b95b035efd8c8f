"""What a process finds under the variables it was started with, as JSON on its last line.

`python -m support.on_processor FOLDER`, with the tests' folder on the path. The folder holds the
experiment of `small_gate.py` and a baseline of it.
"""

import hashlib
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from paftbench import installed
from paftbench.environment.record import environment
from paftbench.verify import fault_keys
from paftbench.verify.promise import promises_of
from paftbench.verify.suite import tried
from support import placements
from support.small_gate import check, run_all

STEPS = 7
STRIKE = ("step", "fault", "rank", "site", "parameter", "index", "bit")


def broken(name: str) -> list[str]:
    """The promises on draws that a shipped fault model breaks here."""
    found = tried(installed.usable("fault_models")[name], promises_of(fault_keys), fast=True)
    return [f"{name}: {finding.promise.sentence}: {finding.broken[0]}" for finding in found if finding.broken]


def trained() -> dict[str, Any]:
    """A trial with faults at every site against plain torch, and a digest of where strikes fell."""
    planned = replace(placements.trials(2)["resnet"], steps=STEPS)
    whole = placements.virtual(planned)
    landed = [row for row in whole.rows if row["landed"] and row["index"] is not None]
    parameters, buffers = placements.by_reference(planned, landed)
    pairs = [*zip(whole.parameters, parameters, strict=True), *zip(whole.buffers, buffers, strict=True)]
    places = [[row[key] for key in STRIKE] for row in landed]
    return {
        "same": all(torch.equal(ours, theirs) for ours, theirs in pairs),
        "strikes": len(landed),
        "places": hashlib.sha256(json.dumps(places).encode()).hexdigest(),
    }


def noise() -> list[float]:
    """Normal draws as dense noise takes them."""
    return torch.empty(1000).normal_(generator=torch.Generator().manual_seed(1)).tolist()


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    run_all(folder)
    told = {
        "environment": environment(),
        "broken": broken("bit_flip") + broken("gaussian_noise"),
        "trained": trained(),
        "noise": noise(),
        "exact": check(folder, "--baseline", folder / "b.json", "--mode", "exact"),
        "bound": check(folder, "--baseline", folder / "b.json"),
    }
    print(json.dumps(told))
