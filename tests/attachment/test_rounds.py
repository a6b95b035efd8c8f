"""The state machine of a step, without torch: what each state answers to each event."""

import random

import pytest
from support.checkout import ROOT

from paftbench.attachment import mistakes
from paftbench.attachment.rounds import Act, Event, Rounds, State, refusal

PAGE = ROOT / "docs" / "attach.md"
SKIPPED = (Act.MITIGATE_SKIPPED, Act.CLOSE_SKIPPED)

# Where a state stays as it is, and nothing is to be done.
STAYS: dict[State, str] = {
    State.BETWEEN: "forward, unscale, unscaled, overflowed, update, updated, skipped, save, end",
    State.PASSING: "forward, end",
    State.GATHERING: "forward, end",
    State.STRIKING: "forward, end",
    State.RECEIVED: "unscale, save, end",
    State.READY: "unscale, unscaled, overflowed, update, save, end",
    State.OVERTAKEN: "forward, skipped, save, end",
    State.BROKEN: "",
    State.DETACHED: "save, end, detach",
}
MOVES: dict[tuple[State, Event], tuple[State, tuple[Act, ...]]] = {
    **{(state, Event.PASS): (State.PASSING, ()) for state in (State.BETWEEN, State.GATHERING, State.OVERTAKEN)},
    (State.RECEIVED, Event.PASS): (State.PASSING, (Act.DISCARD,)),
    (State.READY, Event.PASS): (State.PASSING, (Act.DISCARD,)),
    **{
        (state, Event.LAST_PASS): (State.STRIKING, (Act.BEGIN,))
        for state in (State.BETWEEN, State.GATHERING, State.OVERTAKEN)
    },
    (State.RECEIVED, Event.LAST_PASS): (State.STRIKING, (Act.DISCARD, Act.BEGIN)),
    (State.READY, Event.LAST_PASS): (State.STRIKING, (Act.DISCARD, Act.BEGIN)),
    (State.PASSING, Event.PASSED): (State.GATHERING, ()),
    (State.STRIKING, Event.PASSED): (State.RECEIVED, (Act.RECEIVE,)),
    (State.RECEIVED, Event.UNSCALED): (State.READY, (Act.MITIGATE,)),
    (State.RECEIVED, Event.OVERFLOWED): (State.READY, (Act.MITIGATE_SKIPPED,)),
    (State.RECEIVED, Event.SKIPPED): (State.BETWEEN, SKIPPED),
    (State.READY, Event.UPDATED): (State.BETWEEN, (Act.CLOSE,)),
    (State.READY, Event.SKIPPED): (State.BETWEEN, (Act.CLOSE_SKIPPED,)),
    (State.RECEIVED, Event.FORWARD): (State.OVERTAKEN, (Act.DISCARD,)),
    (State.READY, Event.FORWARD): (State.OVERTAKEN, (Act.DISCARD,)),
    **{
        (state, Event.DETACH): (State.DETACHED, (Act.FLUSH,))
        for state in (State.BETWEEN, State.PASSING, State.GATHERING, State.STRIKING, State.OVERTAKEN)
    },
    (State.RECEIVED, Event.DETACH): (State.DETACHED, (Act.DISCARD, Act.FLUSH)),
    (State.BROKEN, Event.DETACH): (State.DETACHED, ()),
    (State.READY, Event.DETACH): (State.DETACHED, (Act.DISCARD, Act.FLUSH)),
}
LEGAL = MOVES | {
    (state, Event(name)): (state, ()) for state, names in STAYS.items() for name in names.split(", ") if name
}
ILLEGAL = [(state, event) for state in State for event in Event if (state, event) not in LEGAL]
# What only DDP and the scaler can do out of order, never a user's loop.
INNER = {Event.PASS, Event.LAST_PASS, Event.PASSED, Event.UNSCALED, Event.OVERFLOWED}
USES = {Event.UNSCALE, Event.UPDATE, Event.UPDATED, Event.UNSCALED, Event.OVERFLOWED, Event.SKIPPED}


def loop(state: State = State.BETWEEN, *, held: bool = False, **fields: int) -> Rounds:
    """One that has made steps and is now in a state."""
    given = {"accumulation": 3, "passes": 7, "updates": 2, **fields}
    return Rounds(state=state, scaled=True, held=lambda: held, **given)  # type: ignore[arg-type]


@pytest.mark.parametrize(("state", "event"), LEGAL, ids=str)
def test_a_legal_event_leads_where_it_should_and_says_what_to_do(state: State, event: Event) -> None:
    rounds = loop(state)
    acts = rounds.on(event)
    assert (rounds.state, acts) == LEGAL[state, event]
    assert rounds.updates == 2 + (event in (Event.UPDATED, Event.SKIPPED)) and rounds.passes == 7


def mistake(state: State, event: Event) -> str:
    """What an illegal event is called."""
    if state is State.DETACHED or state is State.BROKEN:
        return mistakes.DETACHED if state is State.DETACHED else mistakes.BROKEN
    if event is Event.UNGIVEN_SCALER or event is Event.BESIDE_SCALER:
        return mistakes.UNGIVEN_SCALER if event is Event.UNGIVEN_SCALER else mistakes.BESIDE_SCALER
    if event is Event.SAVE:
        return mistakes.SAVED_WITHIN
    if event in USES:
        return {
            State.PASSING: mistakes.IN_BACKWARD, State.STRIKING: mistakes.IN_BACKWARD,
            State.GATHERING: mistakes.TOO_EARLY, State.RECEIVED: mistakes.STILL_SCALED,
            State.OVERTAKEN: mistakes.OVERTAKEN,
        }[state]  # fmt: skip
    return mistakes.ORDER


@pytest.mark.parametrize(("state", "event"), ILLEGAL, ids=str)
def test_an_illegal_event_is_refused_by_name_and_changes_nothing(state: State, event: Event) -> None:
    rounds = loop(state)
    assert refusal(state, event) == mistake(state, event)
    with pytest.raises(RuntimeError) as refused:
        rounds.on(event)
    assert (rounds.state, rounds.passes, rounds.updates, rounds.piled) == (state, 7, 2, 0)
    assert "{" not in str(refused.value) and "\n" not in str(refused.value)


def test_what_a_user_does_is_never_called_our_own_error() -> None:
    for state, event in ILLEGAL:
        if state is not State.DETACHED and event not in INNER:
            assert refusal(state, event) != mistakes.ORDER, (state, event)


# --- what the same event means after different pasts ---------------------------------------------------------------


def message(rounds: Rounds, event: Event) -> str:
    with pytest.raises(RuntimeError) as refused:
        rounds.on(event)
    return str(refused.value)


@pytest.mark.parametrize("event", [Event.UNSCALE, Event.UPDATE, Event.UPDATED])
def test_using_gradients_before_any_came_through_the_hook_is_refused(event: Event) -> None:
    for state in (State.BETWEEN, State.READY, State.OVERTAKEN):  # the latter after loading a state
        assert message(loop(state, passes=0), event).startswith("the hook was never called")


@pytest.mark.parametrize("event", [Event.UNSCALE, Event.UPDATE, Event.UPDATED])
def test_using_gradients_that_did_not_come_through_the_hook_since_the_last_step_is_refused(event: Event) -> None:
    assert message(loop(held=True), event).startswith("the optimizer took gradients that did not come through the hook")
    assert loop(held=False).on(event) == ()


@pytest.mark.parametrize("event", [Event.UNSCALE, Event.UPDATE, Event.UPDATED])
def test_using_the_gradients_of_several_steps_is_refused_with_their_number(event: Event) -> None:
    found = message(loop(State.READY, piled=1), event)
    assert found.startswith("accumulation (backward passes per step) is 3, but the optimizer got the gradients of 6: ")


def test_an_optimizer_that_is_too_early_is_told_after_how_many_passes() -> None:
    assert message(loop(State.GATHERING, passes=8), Event.UPDATE) == (
        "accumulation (backward passes per step) is 3, but the optimizer stepped after 2; passes inside no_sync() do "
        "not count"
    )


def test_the_end_of_a_loop_without_passes_or_updates_is_refused_and_of_one_that_was_over_is_not() -> None:
    assert message(Rounds(), Event.END).startswith("the hook was never called")
    assert message(loop(updates=0), Event.END).startswith("the attached optimizer was never stepped: 7 backward passes")
    rounds = Rounds()
    rounds.load_state_dict(loop().state_dict())
    assert rounds.on(Event.END) == ()


# --- whole steps ---------------------------------------------------------------------------------------------------


def backward(rounds: Rounds, adds: bool | None = None) -> list[Act]:
    """A backward pass of three buckets."""
    acts = [act for _ in range(3) for act in rounds.bucket()]
    return acts + list(rounds.passed(adds))


def test_a_step_draws_receives_mitigates_and_closes_once_whatever_the_buckets() -> None:
    rounds = Rounds(held=lambda: False)
    for _ in range(3):
        assert rounds.on(Event.FORWARD) == ()
        assert backward(rounds) == [Act.BEGIN, Act.RECEIVE, Act.MITIGATE]
        assert (*rounds.on(Event.UPDATE), *rounds.on(Event.UPDATED)) == (Act.CLOSE,)
    assert (rounds.passes, rounds.updates, rounds.state) == (3, 3, State.BETWEEN)


def test_with_accumulation_the_last_pass_alone_is_struck() -> None:
    rounds = Rounds(accumulation=3)
    assert [backward(rounds) for _ in range(3)] == [[], [], [Act.BEGIN, Act.RECEIVE, Act.MITIGATE]]
    assert rounds.state is State.READY


def test_with_a_scaler_mitigations_wait_for_gradients_in_their_own_units() -> None:
    rounds = Rounds(scaled=True)
    assert backward(rounds) == [Act.BEGIN, Act.RECEIVE]
    assert (*rounds.on(Event.UNSCALE), *rounds.on(Event.UNSCALED)) == (Act.MITIGATE,)
    assert (*rounds.on(Event.UPDATE), *rounds.on(Event.UPDATED)) == (Act.CLOSE,)


def test_what_could_not_be_done_to_the_end_is_named_until_a_state_is_loaded() -> None:
    rounds = Rounds(held=lambda: False)
    saved = rounds.state_dict()
    backward(rounds)
    rounds.broke(ZeroDivisionError("mine"))
    for event in (Event.FORWARD, Event.UPDATE, Event.SAVE, Event.END):
        assert "within a step (ZeroDivisionError: mine)" in message(rounds, event)
    rounds.load_state_dict(saved)
    assert backward(rounds) == [Act.BEGIN, Act.RECEIVE, Act.MITIGATE]


def test_steps_that_pile_up_are_counted_until_gradients_begin_anew() -> None:
    rounds = Rounds(accumulation=2)
    for adds, piled in [(None, 0), (None, 0), (True, 1), (None, 1), (True, 2), (None, 2), (False, 0), (None, 0)]:
        rounds.on(Event.FORWARD)
        backward(rounds, adds)
        assert rounds.piled == piled
    rounds.on(Event.UPDATED)
    assert rounds.state is State.BETWEEN


def test_a_saved_step_without_a_decision_is_discarded_by_what_comes_next() -> None:
    for state, acts in [(State.RECEIVED, (Act.DISCARD,)), (State.READY, (Act.DISCARD,)), (State.BETWEEN, ())]:
        rounds = Rounds(scaled=True, piled=1)
        rounds.load_state_dict(loop(state).state_dict())
        assert (rounds.state, rounds.passes, rounds.updates, rounds.piled) == (state, 0, 0, 0)
        assert rounds.on(Event.FORWARD) == acts


CLOSES = {Act.CLOSE, Act.CLOSE_SKIPPED, Act.DISCARD}
DUE = {
    None: {Act.BEGIN},
    Act.BEGIN: {Act.RECEIVE},
    Act.RECEIVE: {Act.MITIGATE, Act.MITIGATE_SKIPPED, Act.DISCARD},
}


def walk(draw: random.Random) -> list[Act]:
    """What 200 random events, legal or not, lead to."""
    rounds = Rounds(accumulation=draw.randint(1, 3), scaled=draw.random() < 0.5, held=lambda: draw.random() < 0.5)
    events = [rounds.bucket, lambda: rounds.passed(draw.choice([None, True, False])), *Event]
    events.remove(Event.DETACH)
    done: list[Act] = []
    for _ in range(200):
        event = draw.choice(events)
        before = rounds.state, rounds.passes, rounds.updates
        try:
            done += rounds.on(event) if isinstance(event, Event) else event()
        except RuntimeError:
            assert (rounds.state, rounds.passes, rounds.updates) == before
        assert rounds.state in set(State)
    return [*done, *rounds.on(Event.DETACH)]


def test_a_random_walk_stays_in_named_states_and_every_step_begins_and_is_closed_or_discarded_once() -> None:
    steps = 0
    for seed in range(50):
        last: Act | None = None
        *acts, flushed = walk(random.Random(seed))
        for act in acts:
            assert act in DUE.get(last, CLOSES)
            last, steps = (None, steps + 1) if act in CLOSES else (act, steps)
        assert flushed is Act.FLUSH and last in (None, Act.BEGIN)  # detached between steps, or inside a last pass
    assert steps > 300


# --- drawn ---------------------------------------------------------------------------------------------------------


def drawn() -> dict[tuple[str, str], str]:
    """The table of docs/attach.md: (state, event) and the state that follows."""
    section = PAGE.read_text(encoding="utf-8").partition("## A step as a state machine\n")[2].partition("\n## ")[0]
    table = section[section.index("| event |") :].partition("\n\n")[0]
    head, _, *body = [[cell.strip(" `") for cell in row.split("|")[1:-1]] for row in table.splitlines()]
    return {(state, event): cell for event, *row in body for state, cell in zip(head[1:], row, strict=True)}


def test_the_page_draws_the_machine_as_it_is() -> None:
    table = drawn()
    assert {state for state, _ in table} == set(State)
    assert {event for _, event in table} == set(Event) - {Event.UNGIVEN_SCALER, Event.BESIDE_SCALER}
    for (state, event), cell in table.items():
        found = LEGAL.get((State(state), Event(event)))
        assert cell == ("" if found is None else "·" if found[0] == state else found[0]), (state, event)
