"""The lifecycle of a consumer: new, running, closing, closed. Pure."""

from enum import Enum, auto
from typing import Final

from oncelog.clients.consumer.consumer_errors import ConsumerClosed
from oncelog.clients.errors import IllegalState


class State(Enum):
    """What a consumer can do now."""

    NEW = auto()
    """It can be started; a subscription can be made already."""
    RUNNING = auto()
    CLOSING = auto()
    """Its rebalance listener can still commit; nothing can be polled."""
    CLOSED = auto()


TRANSITIONS: Final = {
    State.NEW: frozenset({State.RUNNING, State.CLOSING}),
    State.RUNNING: frozenset({State.CLOSING}),
    State.CLOSING: frozenset({State.CLOSED}),
    State.CLOSED: frozenset[State](),
}


class Lifecycle:
    """The state of one consumer, and what the application may call in it."""

    def __init__(self) -> None:
        self.state = State.NEW

    def enter(self, state: State) -> None:
        """Go on to a state that may follow."""
        assert state in TRANSITIONS[self.state], f"{self.state} is not followed by {state}"
        self.state = state

    @property
    def is_closing(self) -> bool:
        """Return whether ``close`` has been called."""
        return self.state in (State.CLOSING, State.CLOSED)

    def require_not_closing(self) -> None:
        """Raise ``ConsumerClosed`` once ``close`` has been called."""
        if self.is_closing:
            raise ConsumerClosed("the consumer is being closed, or has been")

    def require_connected(self) -> None:
        """Raise ``ConsumerClosed`` if the consumer is closed, ``IllegalState`` if it is not started."""
        if self.state is State.CLOSED:
            raise ConsumerClosed("the consumer has been closed")
        if self.state is State.NEW:
            raise IllegalState("the consumer is not started: use `async with Consumer(...)`, or await start() first")

    def require_running(self) -> None:
        """Raise what the two above raise: only a consumer that is running can be polled."""
        if self.state is not State.RUNNING:
            self.require_connected()
            self.require_not_closing()
