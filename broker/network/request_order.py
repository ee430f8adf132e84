"""The order of a connection's requests and responses: what a client can have known when it sent a request.

A request that began to arrive before a response was flushed was not sent because of that response. Responses leave in
the order of their requests, so one that is ready leaves with the last of those that it waits for.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from oncelog.broker.network.frames import FrameReader


class QueuedResponse(Protocol):
    """The place of a response that is not sent yet."""

    on_flushed: tuple[Callable[[int], None], ...]


class ConnectionOrder:
    """Implements ``oncelog.broker.dispatch.request.RequestOrder`` for one connection."""

    __slots__ = ("_frames", "_reader", "_transport", "in_hand", "received", "unflushed")

    def __init__(self, transport: asyncio.Transport, reader: FrameReader, frames: deque[memoryview]) -> None:
        """Follow a connection by its ``frames``, which are received and not begun."""
        self._transport = transport
        self._reader = reader
        self._frames = frames
        self.received = 0
        """Whole requests that have come."""
        self.in_hand: tuple[Callable[[int], None], ...] = ()
        """To be called back when the response to the request in hand is flushed, until that response has its place."""
        self.unflushed: tuple[Callable[[int], None], ...] = ()
        """To be called back when what was sent is flushed; looked at before anything more is received."""

    def request_number(self) -> int:
        """Return the place of the request that is being dispatched, or whose coroutine runs, from 1."""
        return self.received - len(self._frames)

    def when_responded(self, callback: Callable[[int], None]) -> None:
        """Call back once the response to that request is flushed.

        The callback gets the number of requests that have begun to arrive by then.
        """
        self.in_hand += (callback,)

    def take_in_hand(self) -> tuple[Callable[[int], None], ...]:
        """Return the callbacks of the request in hand, whose response is in its place from now on."""
        callbacks, self.in_hand = self.in_hand, ()
        return callbacks

    def place_in_hand(self, queued: Sequence[QueuedResponse]) -> None:
        """Note the request in hand as responded with the last response that is queued.

        If none is, it leaves before anything more is received.
        """
        if queued:
            queued[-1].on_flushed += self.take_in_hand()
        else:
            self.unflushed += self.take_in_hand()

    def note_flushed(self) -> None:
        """Call back if the operating system has all responses; while a client does not read, it has not."""
        if not self._transport.get_write_buffer_size():
            callbacks, self.unflushed = self.unflushed, ()
            for callback in callbacks:
                callback(self.received + self._reader.has_part)
