"""The states of a consumer, over all pairs, and what can be called in each."""

from collections.abc import Callable
from itertools import product

import pytest

from oncelog.clients.consumer.consumer_errors import ConsumerClosed
from oncelog.clients.consumer.lifecycle import TRANSITIONS, Lifecycle, State
from oncelog.clients.errors import IllegalState

PATHS = {
    State.NEW: (),
    State.RUNNING: (State.RUNNING,),
    State.CLOSING: (State.RUNNING, State.CLOSING),
    State.CLOSED: (State.RUNNING, State.CLOSING, State.CLOSED),
}
REQUIREMENTS: dict[Callable[[Lifecycle], None], dict[State, type[Exception]]] = {
    Lifecycle.require_not_closing: {State.CLOSING: ConsumerClosed, State.CLOSED: ConsumerClosed},
    Lifecycle.require_connected: {State.NEW: IllegalState, State.CLOSED: ConsumerClosed},
    Lifecycle.require_running: {
        State.NEW: IllegalState,
        State.CLOSING: ConsumerClosed,
        State.CLOSED: ConsumerClosed,
    },
}


def in_state(state: State) -> Lifecycle:
    """Return a lifecycle that has come to a state."""
    lifecycle = Lifecycle()
    for each in PATHS[state]:
        lifecycle.enter(each)
    return lifecycle


@pytest.mark.parametrize(("before", "after"), product(State, State))
def test_lifecycle_enters_only_states_that_may_follow(before: State, after: State) -> None:
    lifecycle = in_state(before)
    if after in TRANSITIONS[before]:
        lifecycle.enter(after)
        assert lifecycle.state is after
    else:
        with pytest.raises(AssertionError):
            lifecycle.enter(after)
        assert lifecycle.state is before


@pytest.mark.parametrize(("require", "state"), product(REQUIREMENTS, State))
def test_lifecycle_requirement_raises_in_states_that_do_not_meet_it(
    require: Callable[[Lifecycle], None], state: State
) -> None:
    expected = REQUIREMENTS[require].get(state)
    if expected is None:
        require(in_state(state))
    else:
        with pytest.raises(expected):
            require(in_state(state))
