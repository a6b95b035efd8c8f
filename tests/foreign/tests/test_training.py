"""Does training still converge when the gradients that ranks receive are wrong?"""

from typing import Any

import pytest
import torch
from tides.model import NextHour
from tides.training import train

import paftbench

FLIPS = paftbench.Fault("bit_flip", degree=1e-3)
NOISE = paftbench.Fault("gaussian_noise", degree=0.1)
CLIP = paftbench.Mitigation("clip_value", limit=0.5)
SYNC = paftbench.Mitigation("paft_sync", period=10)


def build() -> tuple[NextHour, torch.optim.Optimizer]:
    model = NextHour()
    return model, torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)


def test_survives_bit_flips(faulty_ranks: Any) -> None:
    ranks = faulty_ranks(world_size=4)
    golden = ranks.run(train, build)
    run = ranks.run(train, build, faults=[FLIPS], mitigations=[CLIP, SYNC])
    run.assert_struck(at_least=100)
    run.assert_replicas_agree()
    run.assert_converges_like(golden, margin=0.02)


def test_survives_noise(faulty_ranks: Any) -> None:
    ranks = faulty_ranks(world_size=4)
    golden = ranks.run(train, build)
    run = ranks.run(train, build, faults=[NOISE], mitigations=[SYNC])
    run.assert_replicas_agree()
    run.assert_converges_like(golden, margin=0.02)


@pytest.mark.torchrun
def test_survives_bit_flips_in_processes(faulty_ranks: Any) -> None:
    ranks = faulty_ranks(world_size=2, ranks_as="torchrun")
    run = ranks.run(train, build, faults=[FLIPS], mitigations=[CLIP, SYNC])
    run.assert_struck(at_least=50)
    assert run.curve[-1] < 0.1 * run.curve[0]
