"""The transitions of a link, over all pairs of states and events."""

import pytest

from oncelog.broker.peers.link_state import LinkEvent, LinkState, next_state

CHANGES = {
    (LinkState.IDLE, LinkEvent.NEEDED): LinkState.CONNECTING,
    (LinkState.CONNECTED, LinkEvent.NEEDED): LinkState.CONNECTING,
    (LinkState.CONNECTED, LinkEvent.LOST): LinkState.RECONNECTING,
    (LinkState.CONNECTING, LinkEvent.OPENED): LinkState.CONNECTED,
    (LinkState.CONNECTING, LinkEvent.FAILED): LinkState.IDLE,
    (LinkState.RECONNECTING, LinkEvent.OPENED): LinkState.CONNECTED,
    (LinkState.RECONNECTING, LinkEvent.FAILED): LinkState.IDLE,
}


@pytest.mark.parametrize("event", LinkEvent)
@pytest.mark.parametrize("state", LinkState)
def test_link_state_after_each_event_is_that_of_the_table(state: LinkState, event: LinkEvent) -> None:
    expected = LinkState.CLOSED if event is LinkEvent.CLOSED else CHANGES.get((state, event), state)
    assert next_state(state, event) is expected


@pytest.mark.parametrize("event", LinkEvent)
def test_closed_link_after_any_event_stays_closed(event: LinkEvent) -> None:
    assert next_state(LinkState.CLOSED, event) is LinkState.CLOSED


def test_link_needed_while_connecting_makes_no_second_attempt() -> None:
    for state in (LinkState.CONNECTING, LinkState.RECONNECTING):
        assert next_state(state, LinkEvent.NEEDED) is state
        assert next_state(state, LinkEvent.LOST) is state
