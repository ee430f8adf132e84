"""The states of a link to another broker, and what makes one follow another. Pure.

::

    IDLE --needed--> CONNECTING --opened--> CONNECTED --lost--> RECONNECTING --opened--> CONNECTED
                     CONNECTING --failed--> IDLE                RECONNECTING --failed--> IDLE

A connection that has ended may be needed again before its loss is noticed: then the loss changes nothing. ``closed``
leads from every state to CLOSED, which is left no more.
"""

from enum import Enum, auto
from typing import Final


class LinkState(Enum):
    """What a link has, or does about having it."""

    IDLE = auto()
    """No connection, and none is being made."""
    CONNECTING = auto()
    """One is being made because it is needed."""
    CONNECTED = auto()
    RECONNECTING = auto()
    """One is being made because the last one was lost, to find out whether the broker is gone."""
    CLOSED = auto()


class LinkEvent(Enum):
    """What happens to a link."""

    NEEDED = auto()
    """There is no open connection, and one is wanted."""
    OPENED = auto()
    FAILED = auto()
    """No connection could be made."""
    LOST = auto()
    """A connection has ended."""
    CLOSED = auto()


_NEXT: Final = {
    (LinkState.IDLE, LinkEvent.NEEDED): LinkState.CONNECTING,
    (LinkState.CONNECTED, LinkEvent.NEEDED): LinkState.CONNECTING,
    (LinkState.CONNECTING, LinkEvent.OPENED): LinkState.CONNECTED,
    (LinkState.RECONNECTING, LinkEvent.OPENED): LinkState.CONNECTED,
    (LinkState.CONNECTING, LinkEvent.FAILED): LinkState.IDLE,
    (LinkState.RECONNECTING, LinkEvent.FAILED): LinkState.IDLE,
    (LinkState.CONNECTED, LinkEvent.LOST): LinkState.RECONNECTING,
}
CONNECTING_STATES: Final = frozenset({LinkState.CONNECTING, LinkState.RECONNECTING})


def next_state(state: LinkState, event: LinkEvent) -> LinkState:
    """Return the state after an event; the same one if the event changes nothing."""
    if event is LinkEvent.CLOSED:
        return LinkState.CLOSED
    return _NEXT.get((state, event), state)
