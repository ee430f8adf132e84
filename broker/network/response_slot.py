"""``ResponseSlot``: the place of one response among those that a connection sends in the order of the requests."""

from collections.abc import Callable
from typing import Any, Protocol

from oncelog.broker.dispatch.api_handler import Later
from oncelog.broker.dispatch.dispatcher import ResponseBuffers


class ResponseSlot:
    """The place of one response in the queue of those to be sent."""

    __slots__ = ("closes", "later", "on_arrived", "ready_bytes", "response", "size")

    def __init__(self, response: ResponseBuffers | None = None, *, size: int = 0, closes: bool = False) -> None:
        self.response = response
        self.size = size
        """Bytes of the request, while it has no response."""
        self.ready_bytes = 0 if response is None else sum(map(len, response))
        self.closes = closes
        """The connection ends when this slot's turn comes."""
        self.later: Later | None = None
        """The future that completes the response."""
        self.on_arrived: tuple[Callable[[int], None], ...] = ()
        """Called back when the client has this response and those that are ready behind it (``RequestOrder``)."""


class Finishing(Protocol):
    """Makes a response when something is done."""

    def finish(self, done: Any) -> ResponseBuffers: ...


class LastResponse:
    """The response before a connection ends: it is there already, and nothing has to be done for it."""

    __slots__ = ("_response",)

    def __init__(self, response: ResponseBuffers) -> None:
        self._response = response

    def finish(self, done: Any) -> ResponseBuffers:
        return self._response
