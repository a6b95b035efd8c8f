"""What a mitigation does to training."""

import torch

from paftbench.ranks.axis import Ranks
from paftbench.records.trial import OptimizerConfig
from paftbench.verify.mitigation_case import STEPS, MitigationCase
from paftbench.verify.planted_fault import planted
from paftbench.verify.promise import NotTried, expect, promise
from paftbench.verify.small_training import SmallTraining, rows_equal, same_numbers

ADAM = OptimizerConfig(name="adamw", lr=1e-2)


@promise()
def training_without_faults_stays_finite(case: MitigationCase) -> None:
    for name, optimizer in {"sgd": None, "adamw": ADAM}.items():
        training = case.training(optimizer=optimizer)
        for step in range(STEPS):
            training.run(step + 1)
            finite = all(bool(block.isfinite().all()) for block in training.parameters())
            expect(finite, f"finite parameters under {name}", f"a NaN or infinity after {step + 1} steps")


@promise()
def equal_replicas_stay_equal_without_faults(case: MitigationCase) -> None:
    if case.overrides_aggregate and not _gives_all_ranks_the_same(case):
        raise NotTried("its aggregate() gives each rank a gradient of its own")
    # 3 is no power of two: a plain mean of equal numbers is not the number there.
    for world_size in case.worlds[:3]:
        training = case.training(world_size)
        for step in range(STEPS):
            training.run(step + 1)
            equal = rows_equal(training.parameters())
            expect(equal, f"equal replicas on {world_size} ranks", f"replicas that differ after {step + 1} steps")


@promise()
def gradients_that_are_not_finite_do_not_stop_it(case: MitigationCase) -> None:
    case.training(faults=[planted("lost", 0.02)]).run(STEPS)


@promise()
def a_parameter_that_no_step_uses_is_no_obstacle(case: MitigationCase) -> None:
    training = case.training(idle=True, faults=[planted()]).run(STEPS)
    finite = all(bool(block.isfinite().all()) for block in training.parameters())
    expect(finite, "training to go on beside a parameter without gradient", "parameters that are not finite")


@promise()
def it_trains_in_half_precision_too(case: MitigationCase) -> None:
    for dtype in (torch.bfloat16, torch.float16):
        training = case.training(dtype=dtype).run(STEPS)
        blocks = training.parameters()
        finite = all(bool(block.isfinite().all()) for block in blocks)
        expect(finite, f"finite parameters in {dtype}", "a NaN or infinity")
        kept = all(block.dtype == dtype for block in blocks)
        expect(kept, f"parameters that stay {dtype}", sorted({str(block.dtype) for block in blocks}))


def is_neutral(case: MitigationCase) -> bool:
    """Whether training without faults has the very bits of plain DDP: what users ask, not a promise."""
    return all(
        same_numbers(case.training(world).run(STEPS).parameters(), _plain(world).parameters())
        for world in case.worlds[:3]
    )


def _plain(world_size: int) -> SmallTraining:
    return SmallTraining(ranks=Ranks.virtual(world_size)).run(STEPS)


def _gives_all_ranks_the_same(case: MitigationCase) -> bool:
    generator = torch.Generator().manual_seed(0)
    result = case.mean_of(torch.randn((case.worlds[0], 12), generator=generator))
    return rows_equal([result])
