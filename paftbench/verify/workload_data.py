"""What a workload promises about its data and its model."""

from math import isfinite

from paftbench.testing.streams import seed_streams, streams_untouched
from paftbench.verify.promise import expect, promise
from paftbench.verify.random_states import moved, states
from paftbench.verify.workload_case import BATCH, WORLD, WorkloadCase, copies, items, same
from paftbench.workloads.contract import DataId

LOOKED_AT = 40  # steps of an epoch whose items are compared


@promise()
def metric_direction_and_chance_are_declared(case: WorkloadCase) -> None:
    workload = case.make()
    metric = getattr(workload, "metric", None)
    expect(isinstance(metric, str) and bool(metric), "the name of a metric", repr(metric))
    direction = getattr(workload, "direction", None)
    expect(direction in ("max", "min"), "direction to be max or min", repr(direction))
    chance = workload.chance
    legal = isinstance(chance, int | float) and isfinite(chance)
    expect(legal, "chance, the metric of a model that knows nothing, to be a finite number", repr(chance))


@promise()
def its_data_have_a_name_and_a_fingerprint_that_stay(case: WorkloadCase) -> None:
    one, other = case.make().data_id(), case.make().data_id()
    expect(isinstance(one, DataId) and bool(one.name), "a DataId with a name", repr(one))
    expect(one == other, f"{one} again", other)
    count = case.make().train_items()
    expect(isinstance(count, int) and count > 0, "train_items() to be a number of items > 0", repr(count))


@promise()
def the_same_seed_gives_the_same_data_and_another_seed_others(case: WorkloadCase) -> None:
    base = case.batch(3)
    with streams_untouched():
        seed_streams(11)
        before = states()
        again = case.batch(3)
        used = moved(before, states())
    expect(same(base, again), "the same batch for the same seed, step and rank", "another")
    expect(not used, "every global random generator left alone", f"{used} moved")
    # Read out of order, as after a checkpoint: a shard that counts its calls gives another batch.
    shard = case.make().shard(0, WORLD, BATCH, 0)
    for step in (0, 5, 1):
        shard.batch(step)
    expect(same(shard.batch(3), base), "a batch of seed, step and rank only", "one of what was read before")
    if any(part.numel() for part in base):
        others = {"seed": case.batch(3, seed=1), "step": case.batch(4)}
        alike = [part for part, batch in others.items() if same(base, batch)]
        expect(not alike, "other batches for another seed and step", f"the same for another {' and '.join(alike)}")


@promise()
def shards_are_disjoint_within_an_epoch(case: WorkloadCase) -> None:
    workload = case.make()
    steps = range(min(LOOKED_AT, workload.train_items() // (WORLD * BATCH)))
    shards = [workload.shard(rank, WORLD, BATCH, 0) for rank in range(WORLD)]
    seen = [{item for step in steps for item in items(shard.batch(step), BATCH)} for shard in shards]
    # One rank that draws as much as all of them: what it gets twice is twice in the data.
    alone = workload.shard(0, 1, WORLD * BATCH, 0)
    drawn = [item for step in steps for item in items(alone.batch(step), WORLD * BATCH)]
    repeated = len(drawn) - len(set(drawn))  # data may hold the same item twice
    shared = sum(len(seen[a] & seen[b]) for a in range(WORLD) for b in range(a))
    expect(shared <= repeated, f"no item on two ranks in {len(steps)} steps", f"{shared} items on two ranks")


@promise()
def a_model_is_a_function_of_torchs_seed(case: WorkloadCase) -> None:
    one, again, other = case.model(0), case.model(0, others=1), case.model(1)
    first, second, third = copies(one), copies(again), copies(other)
    unequal = [name for name in first if not first[name].equal(second[name])]
    expect(not unequal, "the same parameters from the same seed", f"others in {', '.join(unequal[:3])}")
    alike = all(first[name].equal(third[name]) for name, _ in one.named_parameters())
    expect(not alike, "other parameters from another seed of torch's global generator", "the same")


@promise()
def its_skeleton_has_the_models_parameters(case: WorkloadCase) -> None:
    skeleton = {name: tuple(value.shape) for name, value in case.make().skeleton().named_parameters()}
    model = {name: tuple(value.shape) for name, value in case.model().named_parameters()}
    differ = sorted(name for name in {*skeleton, *model} if skeleton.get(name) != model.get(name))
    expect(not differ, "the model's parameter names and shapes from skeleton()", f"others for {', '.join(differ[:3])}")
