"""When a fault strikes."""

import pytest

from paftbench.faults.schedules import Schedule, parse_schedule, schedule_spec

SPECS = [
    "every_step",
    {"kind": "probability", "p": 0.25},
    {"kind": "burst", "every": 50, "length": 3, "offset": 7},
    {"kind": "steps", "steps": [0, 4, 9]},
    {"kind": "window", "start": 5, "stop": 8},
]


def schedule(spec: object) -> Schedule:
    return parse_schedule(spec, "schedule")


def struck(spec: object, steps: int = 120) -> list[int]:
    return [step for step in range(steps) if schedule(spec).strikes(step, (0, step))]


@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_a_schedule_and_its_spec_are_inverses(spec: object) -> None:
    assert schedule_spec(schedule(spec)) == spec
    assert schedule(schedule_spec(schedule(spec))) == schedule(spec)


def test_every_step_strikes_each_step() -> None:
    assert struck("every_step", 9) == list(range(9))
    assert schedule({"kind": "every_step"}) == schedule("every_step")


@pytest.mark.parametrize(("every", "length"), [(1, 1), (2, 1), (2, 2), (10, 3), (10, 10), (50, 1), (50, 10)])
@pytest.mark.parametrize("offset", [0, 1, 7, 60])
def test_a_burst_strikes_where_the_formula_says(every: int, length: int, offset: int) -> None:
    spec = {"kind": "burst", "every": every, "length": length, "offset": offset}
    assert struck(spec) == [t for t in range(120) if (t - offset + 1) % every < length]


def test_a_burst_falls_on_the_steps_on_which_a_sync_of_the_same_period_falls() -> None:
    assert struck({"kind": "burst", "every": 50}) == [49, 99]
    assert struck({"kind": "burst", "every": 50, "length": 2}) == [0, 49, 50, 99, 100]
    assert struck({"kind": "burst", "every": 50, "offset": 10}) == [9, 59, 109]


def test_listed_steps_and_windows_strike_where_they_say() -> None:
    assert struck({"kind": "steps", "steps": [9, 0, 4]}) == [0, 4, 9]
    assert struck({"kind": "window", "start": 5, "stop": 8}) == [5, 6, 7]
    assert struck({"kind": "window", "stop": 2}) == [0, 1]


@pytest.mark.parametrize("p", [0.0, 0.1, 0.5, 1.0])
def test_a_probability_strikes_that_share_of_steps(p: float) -> None:
    steps = 20_000
    found = len(struck({"kind": "probability", "p": p}, steps))
    assert abs(found - p * steps) <= 4 * (steps * p * (1 - p)) ** 0.5


def test_a_probability_is_a_function_of_its_key() -> None:
    half = schedule({"kind": "probability", "p": 0.5})
    decisions = [[half.strikes(step, (seed, step)) for step in range(64)] for seed in (0, 0, 1)]
    assert decisions[0] == decisions[1] != decisions[2]


@pytest.mark.parametrize("spec", SPECS[:1] + SPECS[2:], ids=str)
@pytest.mark.parametrize(("start", "stop"), [(0, 1), (0, 120), (3, 3), (4, 5), (6, 97), (49, 53)])
def test_a_count_in_closed_form_is_that_of_a_walk(spec: object, start: int, stop: int) -> None:
    one = schedule(spec)
    assert one.count(start, stop) == sum(one.strikes(step, ()) for step in range(start, stop))


@pytest.mark.parametrize(("every", "length", "offset"), [(1, 1, 0), (7, 3, 2), (7, 7, 5), (10, 4, 60), (5, 2, -3)])
def test_bursts_are_counted_in_closed_form(every: int, length: int, offset: int) -> None:
    one = schedule({"kind": "burst", "every": every, "length": length, "offset": offset})
    for start in range(12):
        walked = 0
        for stop in range(start, 50):
            assert one.count(start, stop) == walked
            walked += one.strikes(stop, ())


def test_a_count_of_many_steps_is_exact_and_takes_no_time() -> None:
    steps = 10**13
    assert schedule("every_step").count(0, steps) == steps
    assert schedule({"kind": "burst", "every": 50, "length": 3}).count(0, steps) == 3 * steps / 50
    assert schedule({"kind": "window", "start": 5, "stop": 10**12}).count(0, steps) == 10**12 - 5
    assert schedule({"kind": "steps", "steps": [3, 3, 10**12, 10**14]}).count(0, steps) == 2


@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_forecasts_know_the_share_of_steps_that_are_struck(spec: object) -> None:
    one = schedule(spec)
    expected = one.count(0, 1000)
    assert expected == pytest.approx(len(struck(spec, 1000)), abs=0 if one.kind != "probability" else 60)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("every_stp", r"s: 'every_stp' is not a schedule; did you mean 'every_step'\? Known: burst, every_step"),
        ({"every": 50}, "s: None is not a schedule"),
        (["burst"], r"s: \['burst'\] is not a schedule"),
        ({"kind": ["burst"]}, r"s: \['burst'\] is not a schedule"),
        (7, "s: 7 is not a schedule"),
        ({"kind": "burst"}, "s: 'every' is missing"),
        ({"kind": "burst", "evry": 5}, "s: unknown key 'evry'; did you mean 'every'"),
        ({"kind": "burst", "every": 3, "length": 4}, "s: .*1 <= length <= every, got 4 and 3"),
        ({"kind": "burst", "every": 0}, "s: .*1 <= length <= every, got 1 and 0"),
        ({"kind": "burst", "every": 2.5}, "s.every: .*got 2.5"),
        ({"kind": "probability", "p": 1.5}, r"s: p \(probability of a strike at a step\) must be .* got 1.5"),
        ({"kind": "probability", "p": float("nan")}, "s: p .*got nan"),
        ({"kind": "steps", "steps": [3, -1]}, r"s: steps \(steps count from 0\) must not be negative, got \[3, -1\]"),
        ({"kind": "window", "start": 5, "stop": 5}, "s: start and stop must satisfy 0 <= start < stop, got 5 and 5"),
        ({"kind": "window", "start": 5}, "s: 'stop' is missing"),
    ],
    ids=str,
)  # fmt: skip
def test_a_schedule_that_means_nothing_is_refused_in_one_line(spec: object, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}") as error:
        parse_schedule(spec, "s")
    assert "\n" not in str(error.value)
