"""Every draw is a function of its key."""

import random

import numpy as np
import torch

from paftbench.faults.draws import Draws, generator_of, seed_of

KEY = (3, "noise", 0, 12, 1)
OTHER_KEYS = [
    (4, *KEY[1:]),
    (3, "hum", *KEY[2:]),
    (3, "noise", 1, 12, 1),
    (3, "noise", 0, 13, 1),
    (3, "noise", 0, 12, 2),
]


def draws(key: tuple[int | str, ...] = KEY) -> Draws:
    return Draws(key, step=12, rank=1, row=0, dtype=torch.float32)


def test_seeds_never_change() -> None:
    assert seed_of(0, "noise", 0, 1, 2) == 13_504_379_647_797_631_970
    assert seed_of("model", 0) == 10_131_130_232_859_296_225


def test_keys_that_read_alike_have_seeds_of_their_own() -> None:
    keys = [
        (1, 23),
        (12, 3),
        ("1", 23),
        ("a", "bc"),
        ("ab", "c"),
        ("abc",),
        (1,),
        (1, 0),
        (0, 1),
        ("",),
        (),
        (-1,),
        (2**62,),
    ]
    assert len({seed_of(*key) for key in keys}) == len(keys)
    assert all(0 <= seed_of(*key) < 2**64 for key in keys)


def test_every_part_of_the_key_counts() -> None:
    streams = [generator_of(*key).random(4).tolist() for key in [KEY, *OTHER_KEYS]]
    assert len({tuple(stream) for stream in streams}) == len(streams)
    assert streams[0] == generator_of(*KEY).random(4).tolist()


def test_a_strikes_draw_does_not_depend_on_which_share_is_asked_for() -> None:
    whole = draws().among(50, np.arange(50))
    all_bits, all_uniform, all_columns = whole.integers(0, 32), whole.uniform(), whole.uniform(3)
    for share in (np.arange(0, 20), np.arange(20, 50), np.array([7])):
        part = draws().among(50, share)
        assert part.integers(0, 32).tolist() == all_bits[share].tolist()
        assert part.uniform().tolist() == all_uniform[share].tolist()
        assert part.uniform(3).tolist() == all_columns[share].tolist()


def test_places_and_changes_are_streams_of_their_own() -> None:
    one = draws()
    place = one.generator.random(8).tolist()
    assert place == one.fresh().random(8).tolist()
    change = one.among(8, np.arange(8)).uniform().tolist()
    assert not set(place) & set(change)


def test_dense_streams_are_keyed_by_the_parameter_and_begin_anew() -> None:
    cpu = torch.device("cpu")
    one = draws()
    first = torch.rand(5, generator=one.torch_generator("weight", cpu))
    other = torch.rand(5, generator=one.torch_generator("bias", cpu))
    again = torch.rand(5, generator=one.torch_generator("weight", cpu))
    assert torch.equal(first, again) and not torch.equal(first, other)
    assert torch.equal(first, torch.rand(5, generator=draws().torch_generator("weight", cpu)))
    for key in OTHER_KEYS:
        assert not torch.equal(first, torch.rand(5, generator=draws(key).torch_generator("weight", cpu)))


def test_drawing_reads_and_moves_no_global_generator() -> None:
    found = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        before = (torch.get_rng_state().tolist(), np.random.get_state()[1].tolist(), random.getstate())
        one = draws()
        noise = torch.rand(3, generator=one.torch_generator("weight", torch.device("cpu")))
        found.append((one.generator.random(3).tolist(), noise.tolist()))
        assert before == (torch.get_rng_state().tolist(), np.random.get_state()[1].tolist(), random.getstate())
    assert found[0] == found[1]


def test_a_keys_generator_is_philox_with_the_seed_as_its_key() -> None:
    ours = generator_of("any", 7)
    numpys = np.random.Generator(np.random.Philox(key=seed_of("any", 7)))
    assert ours.integers(0, 2**60, 50).tolist() == numpys.integers(0, 2**60, 50).tolist()
