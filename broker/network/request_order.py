"""The order of a connection's requests and responses: what a client can have known when it sent a request.

A request that began to arrive before a response was flushed was not sent because of that response. Responses leave in
the order of their requests, so one that is ready leaves with the last of those that it waits for.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from oncelog.broker.network.frames import FrameReader


class AwaitedResponse(Protocol):
    """The place of a response that is not sent yet."""

    on_flushed: tuple[Callable[[int], None], ...]


class ConnectionOrder:
    """Implements ``oncelog.broker.dispatch.request.RequestOrder`` for one connection."""

    __slots__ = ("_awaited", "_frames", "_reader", "_transport", "received", "unflushed")

    def __init__(
        self,
        transport: asyncio.Transport,
        reader: FrameReader,
        frames: deque[memoryview],
        awaited: Sequence[AwaitedResponse],
    ) -> None:
        """Follow a connection by its ``frames``, received and not begun, and its ``awaited`` responses, in order."""
        self._transport = transport
        self._reader = reader
        self._frames = frames
        self._awaited = awaited
        self.received = 0
        """Whole requests that have come."""
        self.unflushed: tuple[Callable[[int], None], ...] = ()
        """To be called back when what was sent is flushed; looked at before anything more is received."""

    def request_number(self) -> int:
        """Return the place of the request that is being dispatched, or whose coroutine runs, from 1."""
        return self.received - len(self._frames)

    def when_responded(self, callback: Callable[[int], None]) -> None:
        """Call back once the response to that request is flushed, with the number of requests begun to arrive by then.

        If no response is awaited, it leaves before anything more is received.
        """
        if self._awaited:
            self._awaited[-1].on_flushed += (callback,)
        else:
            self.unflushed += (callback,)

    def note_flushed(self) -> None:
        """Call back if the operating system has all responses; while a client does not read, it has not."""
        if not self._transport.get_write_buffer_size():
            callbacks, self.unflushed = self.unflushed, ()
            for callback in callbacks:
                callback(self.received + self._reader.has_part)
