"""What a fault model's strikes may depend on: their key, and nothing else."""

from dataclasses import replace

from paftbench.testing.streams import seed_streams, streams_untouched
from paftbench.verify.fault_case import WORLD, FaultCase
from paftbench.verify.promise import expect, promise
from paftbench.verify.random_states import moved, states
from paftbench.verify.striking import Struck, in_buckets_backwards, in_slots, same_bits, strike

DETERMINISTIC = "; a model that draws nothing says so with the class attribute deterministic = True"


@promise(every_dtype=True)
def it_neither_uses_nor_moves_a_global_random_generator(case: FaultCase) -> None:
    struck = []
    case.strike()  # whatever it caches on first use
    for seed in (5, 6):
        with streams_untouched():
            seed_streams(seed)
            before = states()
            struck.append(case.strike())
            used = moved(before, states())
        expect(not used, "every global random generator left alone, all draws from `draws`", f"{used} moved")
    _same(struck[0], struck[1], "the same strikes wherever the global random generators stand")


@promise(every_dtype=True)
def the_same_key_draws_the_same_strikes(case: FaultCase) -> None:
    one, other = case.strike(), case.strike()
    _same(one, other, "the same strikes for the same seed, name, attempt, step and rank")


@promise(every_dtype=True)
def another_seed_name_attempt_step_or_rank_draws_other_strikes(case: FaultCase) -> None:
    base = case.strike()
    others = {
        "seed": case.strike(seed=1),
        "name": case.strike(case.fault(name="other")),
        "attempt": case.strike(attempt=1),
        "step": case.strike(first=7),
    }
    alike = [part for part, other in others.items() if same_bits(base.after_TWN[-1], other.after_TWN[-1])]
    # Ranks had other gradients, so equal strikes show in what was added to them, not in what came of it.
    delta_WN = base.after_TWN[-1].double() - base.before_TWN[-1].double()
    if any(bool((delta_WN[0] == delta_WN[rank]).all()) for rank in range(1, WORLD)):
        alike.append("rank")
    if case.cls.deterministic:
        expect({"seed", "name", "attempt"} <= set(alike), "a deterministic model to ignore its key", "other strikes")
    else:
        got = f"the same strikes for another {' and another '.join(alike)}{DETERMINISTIC}"
        expect(not alike, "other strikes for any other key", got)


@promise(every_dtype=True)
def strikes_do_not_depend_on_how_the_gradient_is_cut_into_buckets(case: FaultCase) -> None:
    base = case.strike()
    for cut in (in_slots, in_buckets_backwards):
        other = case.strike(cut=cut)
        _same(base, other, "the same strikes in one piece and in buckets")
        drawn, again = base.injector.counts, other.injector.counts
        expect(drawn == again, f"the counts of one piece, {vars(drawn)}", f"{vars(again)} in buckets")


@promise(every_dtype=True)
def strikes_do_not_depend_on_where_the_gradient_lies_in_memory(case: FaultCase) -> None:
    base = case.strike()
    # Vector code takes what lies before an aligned address one by one: of 4 bytes in 64 there are 15 such offsets.
    for offset in range(1, 16):
        _same(base, case.strike(shifted=offset), f"the same strikes on a view at offset {offset}")


@promise()
def strikes_do_not_depend_on_which_process_hosts_the_rank(case: FaultCase) -> None:
    base = case.strike()
    # One rank, and several of which the first is not rank 0: neither row nor rank may be taken for the other.
    for local in ([0], [1, 2]):
        alone = case.strike(local=local)
        same = same_bits(base.after_TWN[:, local], alone.after_TWN[:, local])
        expect(same, "the strikes of a process that hosts all ranks", f"others in one that hosts ranks {local}")


@promise()
def strikes_do_not_depend_on_other_faults(case: FaultCase) -> None:
    fault = case.fault(parameters="*.weight")
    base = case.strike(fault)
    bystander = case.fault(name="bystander", parameters="*.bias")
    # Before it and behind it in the list, of its own kind, so that a shared stream or a shared cache would show.
    among = strike([bystander, fault, replace(bystander, name="second")], case.layout, case.gradients())
    for slot in case.layout.select("*.weight"):
        here = slice(slot.start, slot.stop)
        same = same_bits(base.after_TWN[..., here].contiguous(), among.after_TWN[..., here].contiguous())
        expect(same, "the strikes of the fault alone", f"others on {slot.name} beside a second fault of its kind")


@promise()
def a_permanent_fault_strikes_a_repetition_the_same_and_a_transient_one_afresh(case: FaultCase) -> None:
    permanent = case.fault(persistence="permanent")
    first, second = case.strike(permanent), case.strike(permanent, attempt=1)
    expect(same_bits(first.after_TWN, second.after_TWN), "a permanent fault to strike a repetition the same", "others")
    if not case.cls.deterministic:
        first, second = case.strike(), case.strike(attempt=1)
        expect(not same_bits(first.after_TWN, second.after_TWN), "a transient fault to strike afresh", "the same")


def _same(one: Struck, other: Struck, expected: str) -> None:
    """`Broken` unless bits and log are equal."""
    if not same_bits(one.after_TWN, other.after_TWN):
        differ = int((one.after_TWN != other.after_TWN).sum())
        expect(False, expected, f"{max(differ, 1)} elements that differ")
    expect(repr(one.rows) == repr(other.rows), expected, "another log")
