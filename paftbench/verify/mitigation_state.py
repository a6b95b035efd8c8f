"""What a mitigation keeps: declared, in its state, and the same after a checkpoint."""

from typing import Any

from torch import Tensor

from paftbench.records.trial import OptimizerConfig
from paftbench.verify.fault_memory import held, through_a_file
from paftbench.verify.mitigation_case import STEPS, MitigationCase
from paftbench.verify.planted_fault import planted
from paftbench.verify.promise import expect, promise
from paftbench.verify.small_training import SmallTraining, same_numbers

STOPS = (1, 10, 11, 17)  # completed steps: around a period of ten
FIXED_BYTES = 1024  # numbers and the like, beside what grows with the model


@promise()
def it_resumes_from_a_checkpoint_bit_for_bit(case: MitigationCase) -> None:
    through = _trained(case, STEPS)
    for stop in STOPS:
        begun = _trained(case, stop)
        kept = through_a_file(begun.state_dict())
        # What it left in a class or a module would be this one's, and not what the checkpoint holds.
        case.training(faults=[planted(degree=0.9)]).run(stop)  # another training in between, of the same class
        resumed = case.training(faults=[planted()])
        resumed.virtual.load_state_dict(kept)
        resumed.run(STEPS)
        same = same_numbers(resumed.parameters(), through.parameters())
        expect(same, "the trajectory of a training that ran through", f"another one, continued after {stop} steps")
        same = same_numbers(resumed.virtual.replicas.buffers(), through.virtual.replicas.buffers())
        expect(same, "the buffers of a training that ran through", f"others, continued after {stop} steps")
        told = [resumed.virtual.pipeline.syncs, resumed.virtual.pipeline.periods]
        known = [through.virtual.pipeline.syncs, through.virtual.pipeline.periods]
        expect(told == known, f"{known[0]} synchronisations of periods {known[1]}", f"{told[0]}, {told[1]}")


@promise()
def looking_at_its_state_leaves_the_trajectory_as_it_is(case: MitigationCase) -> None:
    through, watched = _trained(case, STEPS), case.training(faults=[planted()])
    watched.run(STEPS, after=lambda: through_a_file(watched.state_dict()))
    same = same_numbers(watched.parameters(), through.parameters())
    expect(same, "the same trajectory with a checkpoint at every step", "another one: pending() changes something")


@promise()
def flushing_twice_does_no_more_than_once(case: MitigationCase) -> None:
    for stop in STOPS:
        training = _trained(case, stop)
        training.virtual.pipeline.flush()
        once = training.parameters()
        training.virtual.pipeline.flush()
        same = same_numbers(training.parameters(), once)
        expect(same, "a second flush() to change nothing", f"other parameters after {stop} steps")


@promise()
def it_declares_the_memory_it_keeps(case: MitigationCase) -> None:
    training = case.training(norm=False, optimizer=OptimizerConfig(name="sgd", lr=0.05), faults=[planted()])
    declared = case.make().memory_bytes(training.virtual.layout)
    legal = isinstance(declared, int) and declared >= 0
    expect(legal, "memory_bytes() to be a number of bytes >= 0", repr(declared))
    hosted = len(training.virtual.ranks.local)
    most = 0

    def weigh() -> None:
        nonlocal most
        most = max(most, sum(_bytes(state, hosted) for state in training.state_dict()["pipeline"]["mitigations"]))

    training.run(STEPS, after=weigh)
    expect(most <= declared + FIXED_BYTES, f"at most the {declared} bytes a rank that memory_bytes() declares", most)


@promise()
def the_plugin_itself_holds_no_state(case: MitigationCase) -> None:
    mitigation = case.make()
    before = held(mitigation)
    training = case.training(faults=[planted()])
    training.virtual.pipeline.mitigations = (mitigation,)  # the very instance that is looked at
    training.run(STEPS)
    after = held(mitigation)
    changed = sorted(name for name in {*before, *after} if before.get(name) != after.get(name))
    expect(not changed, "instance and class as they were before the training", f"{', '.join(changed)} changed")


def _trained(case: MitigationCase, steps: int) -> SmallTraining:
    return case.training(faults=[planted()]).run(steps)


def _bytes(state: Any, hosted: int) -> int:
    """Bytes of the tensors in a state, per rank: those with a row for each hosted rank count once a rank."""
    if isinstance(state, Tensor):
        rows = hosted if state.ndim and state.shape[0] == hosted else 1
        return state.numel() * state.element_size() // rows
    if isinstance(state, dict):
        return sum(_bytes(value, hosted) for value in state.values())
    return sum(_bytes(value, hosted) for value in state) if isinstance(state, list | tuple) else 0
