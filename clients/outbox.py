"""``Outbox``: the requests of a connection, those that are in flight and those that are held.

While a connection authenticates again, no other request may come between those of the authentication: they are held,
encoded, and written behind them.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from oncelog.protocol.schema import Buffer, Message


class PendingRequest(NamedTuple):
    """A request in flight."""

    correlation_id: int
    version: int
    response_type: type[Message]
    future: "asyncio.Future[Any]"
    sent_at: float
    deadline: float

    @property
    def name(self) -> str:
        """The name of the request."""
        return self.response_type.__name__.removesuffix("Response")


class Outbox:
    """Writes requests to the transport, or holds them."""

    __slots__ = ("_buffers", "_held", "_write", "in_flight", "queue", "send")

    def __init__(self) -> None:
        self.in_flight: deque[PendingRequest] = deque()
        """Written, without a response, in order."""
        self._held: deque[PendingRequest] = deque()
        self._buffers: list[Buffer] = []
        """The requests that are held, encoded; some have no response."""
        self.queue = self.in_flight
        """Where a request waits whose buffers are passed to ``send``."""
        self.send: Callable[[list[Buffer]], None] = self._buffers.extend
        """Writes the buffers of a request, or holds them."""
        self._write: Callable[[list[Buffer]], None] = self.send

    def open(self, write: Callable[[list[Buffer]], None]) -> None:
        """Write with ``write`` from now on."""
        self._write = self.send = write

    def hold(self) -> None:
        """Hold further requests until ``release``."""
        self.queue, self.send = self._held, self._buffers.extend

    def release(self) -> None:
        """Write the requests that were held, and those that follow."""
        self.queue, self.send = self.in_flight, self._write
        buffers, self._buffers = self._buffers, []
        if buffers:
            self.send(buffers)
        self.in_flight += self._held
        self._held.clear()

    @contextmanager
    def passing(self) -> Iterator[None]:
        """Write what is sent within this context before the requests that are held."""
        held = self.queue, self.send
        self.queue, self.send = self.in_flight, self._write
        try:
            yield
        finally:
            self.queue, self.send = held

    def take_all(self) -> list[PendingRequest]:
        """Remove every request, because the connection has ended, and return those that wait for responses."""
        pending = [*self.in_flight, *self._held]
        for each in (self.in_flight, self._held, self._buffers):
            each.clear()
        return pending
