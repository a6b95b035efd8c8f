"""A step of a user's loop as a state machine: what may follow what, what is then to be done, what a loop did mistakes.

Nothing here knows torch: model, optimizer and scaler report events, and the answer names what is to be done, in order.
What `FOLLOWS` does not name is refused: by a user's mistake that `REFUSED` or `ANYWHERE` names, else as our own error.
docs/attach.md draws it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from paftbench.attachment import mistakes


class State(StrEnum):
    """Where a loop is. A backward pass counts where it is synchronised; `accumulation` of them make a step."""

    BETWEEN = "between"  # no step is open: nothing has come yet, or the optimizer has decided
    PASSING = "passing"  # a backward pass is under way, and not its step's last
    GATHERING = "gathering"  # some of the step's passes are complete
    STRIKING = "striking"  # the step's last pass is under way: faults strike it
    RECEIVED = "received"  # gradients are there and struck; the scaler has yet to unscale them
    READY = "ready"  # mitigations have seen them; the optimizer has yet to decide
    OVERTAKEN = "overtaken"  # a forward pass came before the optimizer had decided: the gradients are discarded
    BROKEN = "broken"  # what was to be done failed half-way: the step is neither open nor over
    DETACHED = "detached"


class Event(StrEnum):
    """What a loop, or DDP within it, does."""

    FORWARD = "forward"  # a forward pass with gradients begins
    PASS = "pass"  # the first bucket of a backward pass comes that is not its step's last
    LAST_PASS = "last pass"  # the same of the step's last
    PASSED = "passed"  # the pass is over, its gradients in place
    UNSCALE = "unscale"  # the scaler is about to unscale the gradients
    UNSCALED = "unscaled"  # they are in their own units
    OVERFLOWED = "overflowed"  # they are, and a rank's hold an infinity: all ranks will skip
    UPDATE = "update"  # the optimizer is about to take the gradients
    UPDATED = "updated"  # it has, by itself or through the scaler
    SKIPPED = "skipped"  # the scaler has left the update out
    UNGIVEN_SCALER = "ungiven scaler"  # a scaler that attach() was not given steps the optimizer
    BESIDE_SCALER = "beside scaler"  # attach() was given a scaler, and the optimizer is stepped without it
    SAVE = "save"
    END = "end"  # the `with` block ends without an error
    DETACH = "detach"


class Act(StrEnum):
    """What is to be done; a step's strikes are drawn at `BEGIN`, and it is counted at `CLOSE`."""

    BEGIN = "begin"
    RECEIVE = "receive"
    MITIGATE = "mitigate"
    MITIGATE_SKIPPED = "mitigate, update skipped"
    CLOSE = "close"
    CLOSE_SKIPPED = "close, update skipped"
    DISCARD = "discard"  # the gradients are thrown away: no step, and strikes on them landed nowhere
    FLUSH = "flush"


Acts = tuple[Act, ...]
# Sets, since looking a member up in its class takes longer than all else that a bucket needs.
TAKES = frozenset({Event.UNSCALE, Event.UPDATE, Event.UPDATED})  # the gradients are used
JUDGED = TAKES | {Event.END}  # what the past may forbid
DECIDED = frozenset({Event.UPDATED, Event.SKIPPED})
IN_PASS = frozenset({State.PASSING, State.STRIKING})
TAKEN_IN = frozenset({State.BETWEEN, State.RECEIVED, State.READY})
STRIKES = frozenset({State.STRIKING})
DECIDES = (*TAKES, Event.UNSCALED, Event.OVERFLOWED, Event.SKIPPED)


def _stays(state: State, *events: Event) -> dict[Event, tuple[State, Acts]]:
    return {event: (state, ()) for event in events}


def _leads(*closing: Act) -> dict[Event, tuple[State, Acts]]:
    """What may come after any backward pass; `closing` ends the step that is open."""
    return {
        Event.PASS: (State.PASSING, closing),
        Event.LAST_PASS: (State.STRIKING, (*closing, Act.BEGIN)),
        Event.DETACH: (State.DETACHED, (*closing, Act.FLUSH)),
    }


_SKIPPED = (Act.MITIGATE_SKIPPED, Act.CLOSE_SKIPPED)
FOLLOWS: dict[State, dict[Event, tuple[State, Acts]]] = {
    # Here an update takes no gradient of the model: with one, it is refused (`Rounds.held`).
    State.BETWEEN: _leads() | _stays(State.BETWEEN, Event.FORWARD, *DECIDES, Event.SAVE, Event.END),
    State.PASSING: _stays(State.PASSING, Event.FORWARD, Event.END)
    | {Event.PASSED: (State.GATHERING, ()), Event.DETACH: (State.DETACHED, (Act.FLUSH,))},
    State.GATHERING: _leads() | _stays(State.GATHERING, Event.FORWARD, Event.END),
    State.STRIKING: _stays(State.STRIKING, Event.FORWARD, Event.END)
    | {Event.PASSED: (State.RECEIVED, (Act.RECEIVE,)), Event.DETACH: (State.DETACHED, (Act.FLUSH,))},
    State.RECEIVED: _leads(Act.DISCARD)
    | _stays(State.RECEIVED, Event.UNSCALE, Event.SAVE, Event.END)
    | {
        Event.FORWARD: (State.OVERTAKEN, (Act.DISCARD,)),
        Event.UNSCALED: (State.READY, (Act.MITIGATE,)),
        Event.OVERFLOWED: (State.READY, (Act.MITIGATE_SKIPPED,)),
        Event.SKIPPED: (State.BETWEEN, _SKIPPED),
    },
    State.READY: _leads(Act.DISCARD)
    | _stays(State.READY, Event.UNSCALE, Event.UNSCALED, Event.OVERFLOWED, Event.UPDATE, Event.SAVE, Event.END)
    | {
        Event.FORWARD: (State.OVERTAKEN, (Act.DISCARD,)),
        Event.UPDATED: (State.BETWEEN, (Act.CLOSE,)),
        Event.SKIPPED: (State.BETWEEN, (Act.CLOSE_SKIPPED,)),
    },
    # A scaler that had found an infinity before the forward pass leaves the update out, as the step already counts.
    State.OVERTAKEN: _leads() | _stays(State.OVERTAKEN, Event.FORWARD, Event.SKIPPED, Event.SAVE, Event.END),
    State.BROKEN: {Event.DETACH: (State.DETACHED, ())},
    State.DETACHED: _stays(State.DETACHED, Event.SAVE, Event.END, Event.DETACH),
}

ANYWHERE = {Event.UNGIVEN_SCALER: mistakes.UNGIVEN_SCALER, Event.BESIDE_SCALER: mistakes.BESIDE_SCALER}
_IN_BACKWARD = dict.fromkeys(DECIDES, mistakes.IN_BACKWARD) | {Event.SAVE: mistakes.SAVED_WITHIN}
REFUSED: dict[State, dict[Event, str]] = {
    State.BETWEEN: {},
    State.PASSING: _IN_BACKWARD,
    State.GATHERING: dict.fromkeys(DECIDES, mistakes.TOO_EARLY) | {Event.SAVE: mistakes.SAVED_WITHIN},
    State.STRIKING: _IN_BACKWARD,
    State.RECEIVED: dict.fromkeys((Event.UPDATE, Event.UPDATED), mistakes.STILL_SCALED),
    State.READY: {},
    State.OVERTAKEN: {event: mistakes.OVERTAKEN for event in DECIDES if event is not Event.SKIPPED},
    State.BROKEN: {event: mistakes.BROKEN for event in Event if event is not Event.DETACH},
    State.DETACHED: {event: mistakes.DETACHED for event in Event if event not in FOLLOWS[State.DETACHED]},
}


def refusal(state: State, event: Event) -> str | None:
    """What a loop did wrong that comes to an event in a state where it is not legal."""
    if event in FOLLOWS[state]:
        return None
    return REFUSED[state].get(event) or ANYWHERE.get(event, mistakes.ORDER)


@dataclass(kw_only=True)
class Rounds:
    """A loop's state, and how often it has done what.

    `held`: whether the model's parameters hold gradients, asked only where an update comes and no step is open.
    `past_the_hook`: the parameter whose gradient is not only what the hook has reduced; empty where there is none.
    `passes` are synchronised backward passes, `updates` the optimizer's decisions. `piled`: closed steps whose
    gradients the next one added to, so that they were none. `continued`: from a state that had made steps. `failure`:
    what left it broken.
    """

    accumulation: int = 1
    scaled: bool = False
    held: Callable[[], bool] = lambda: True
    past_the_hook: Callable[[], str] = lambda: ""
    state: State = State.BETWEEN
    passes: int = 0
    updates: int = 0
    piled: int = 0
    continued: bool = False
    failure: str = ""

    @property
    def into(self) -> int:
        """Passes of the step under way that are complete."""
        return self.passes % self.accumulation

    def on(self, event: Event) -> Acts:
        """What is to be done, in order; `RuntimeError` that says what the loop did wrong, and nothing has changed."""
        why = self._missing(event) or refusal(self.state, event)
        if why is not None:
            raise RuntimeError(why.format(
                accumulation=self.accumulation, into=self.into, passes=self.passes, state=self.state, event=event,
                gradients=(self.piled + 1) * self.accumulation, failure=self.failure,
            ))  # fmt: skip
        self.state, acts = FOLLOWS[self.state][event]
        if event in DECIDED:
            self.updates, self.piled = self.updates + 1, 0
        return acts

    def broke(self, error: BaseException) -> None:
        """What `on` answered could not be done to the end."""
        self.state, self.failure = State.BROKEN, f"{type(error).__name__}: {error}"

    def bucket(self) -> Acts:
        """A bucket has come: the first begins a pass."""
        if self.state in IN_PASS:
            return ()
        return self.on(Event.LAST_PASS if self.into == self.accumulation - 1 else Event.PASS)

    def passed(self, adds: bool | None) -> Acts:
        """A backward pass is over; `adds`: to the gradients of a step without an update (None: there was none)."""
        acts = self.on(Event.PASSED)
        self.passes += 1
        if adds is not None:
            self.piled = self.piled + 1 if adds else 0
        if self.state is State.RECEIVED and not self.scaled:
            acts += self.on(Event.UNSCALED)
        return acts

    def _missing(self, event: Event) -> str | None:
        """Why an event that is legal in this state is not, after what the loop has done, or not done, so far."""
        if event not in JUDGED or self.state is State.BROKEN:
            return None
        if event in TAKES:
            return self._untakeable()
        if not (self.continued and self.passes == 0):  # else nothing was left to do
            if self.passes == 0:
                return mistakes.NEVER_CALLED
            if self.updates == 0:
                return mistakes.NEVER_STEPPED
        return None

    def _untakeable(self) -> str | None:
        """What is wrong with gradients that are about to be used."""
        if self.passes == 0:
            return mistakes.NEVER_CALLED
        if self.piled and self.state in (State.RECEIVED, State.READY):
            return mistakes.PILED
        if self.state is State.BETWEEN and self.held():
            return mistakes.STRAY
        if self.state in TAKEN_IN and (name := self.past_the_hook()):
            return mistakes.PAST_THE_HOOK.replace("{parameter}", name)
        return None

    def state_dict(self) -> dict[str, Any]:
        """`RuntimeError` within a step."""
        self.on(Event.SAVE)
        undecided = self.state is State.RECEIVED or self.state is State.READY
        return {
            "rounds": self.passes, "updates": self.updates, "undecided": undecided,
            "mitigated": self.state is not State.RECEIVED,
        }  # fmt: skip

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """Continue between two steps; what the loop does from here on is counted, and checked, anew."""
        self.passes = self.updates = self.piled = 0
        self.continued = saved["rounds"] > 0
        self.state = State.BETWEEN
        if saved["undecided"]:
            self.state = State.READY if saved["mitigated"] else State.RECEIVED
