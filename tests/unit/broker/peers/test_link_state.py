"""What holds of a link's states, over all pairs of states and events."""

import pytest

from oncelog.broker.peers.link_state import CONNECTING_STATES, LinkEvent, LinkState, next_state

ENDS_OF_ATTEMPTS = {LinkEvent.OPENED, LinkEvent.FAILED}


def changes() -> list[tuple[LinkState, LinkEvent, LinkState]]:
    pairs = [(state, event) for state in LinkState for event in LinkEvent]
    return [(state, event, after) for state, event in pairs if (after := next_state(state, event)) is not state]


def test_connection_is_gained_only_by_the_attempt_that_was_under_way() -> None:
    """An attempt that ends after the link was closed gives its connection up."""
    gains = {(state, event) for state, event, after in changes() if after is LinkState.CONNECTED}
    assert gains == {(state, LinkEvent.OPENED) for state in CONNECTING_STATES}


@pytest.mark.parametrize("state", [LinkState.CONNECTING, LinkState.RECONNECTING])
def test_attempt_under_way_admits_no_second_one(state: LinkState) -> None:
    """Neither a request nor the loss of the former connection, which is noticed late, begins another."""
    assert next_state(state, LinkEvent.NEEDED) is state
    assert next_state(state, LinkEvent.LOST) is state
    assert next_state(state, LinkEvent.FAILED) is LinkState.IDLE


def test_attempt_begins_when_a_connection_is_needed_or_was_lost() -> None:
    begins = {(state, event, after) for state, event, after in changes() if after in CONNECTING_STATES}
    assert begins == {
        (LinkState.IDLE, LinkEvent.NEEDED, LinkState.CONNECTING),
        (LinkState.CONNECTED, LinkEvent.NEEDED, LinkState.CONNECTING),
        (LinkState.CONNECTED, LinkEvent.LOST, LinkState.RECONNECTING),
    }


def test_end_of_an_attempt_without_one_under_way_changes_nothing() -> None:
    assert {state for state, event, _ in changes() if event in ENDS_OF_ATTEMPTS} == CONNECTING_STATES


@pytest.mark.parametrize("event", LinkEvent)
def test_closed_link_stays_closed_after_any_event(event: LinkEvent) -> None:
    assert next_state(LinkState.CLOSED, event) is LinkState.CLOSED


@pytest.mark.parametrize("state", LinkState)
def test_closing_a_link_closes_it_in_any_state(state: LinkState) -> None:
    assert next_state(state, LinkEvent.CLOSED) is LinkState.CLOSED
