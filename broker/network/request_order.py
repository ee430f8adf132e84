"""The order of a connection's requests and responses: what a client can have known when it sent a request.

A request that began to arrive before a response was flushed was not sent because of that response. Nor does
one count that arrives within ``_QUIET_SECONDS`` of it: clients wait longer before they repeat a request, and what was
sent before may still be under way. What counts is the arrival at the kernel: how many requests the socket's queue holds
is not known, so their number is taken once all of it has been read. Responses leave in the order of their
requests, so one that is ready leaves with the last of those that it waits for.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from oncelog.broker.network.frames import FrameReader
from oncelog.broker.network.socket_queues import unread_bytes

_QUIET_SECONDS: Final = 0.01


class QueuedResponse(Protocol):
    """The place of a response that is not sent yet."""

    on_flushed: tuple[Callable[[int], None], ...]


class ConnectionOrder:
    """Implements ``oncelog.broker.dispatch.request.RequestOrder`` for one connection."""

    __slots__ = (
        "_descriptor",
        "_drained_at",
        "_frames",
        "_loop",
        "_reader",
        "_timer",
        "_transport",
        "in_hand",
        "received",
        "received_bytes",
        "undrained",
        "unflushed",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        transport: asyncio.Transport,
        reader: FrameReader,
        frames: deque[memoryview],
        descriptor: int,
    ) -> None:
        """Follow a connection by its ``frames``, which are received and not begun, and its socket's ``descriptor``."""
        self._loop = loop
        self._timer: asyncio.TimerHandle | None = None
        self._descriptor = descriptor
        self._transport = transport
        self._reader = reader
        self._frames = frames
        self.received = 0
        """Whole requests that have come."""
        self.in_hand: tuple[Callable[[int], None], ...] = ()
        """To be called back when the response to the request in hand is flushed, until that response has its place."""
        self.received_bytes = 0
        """What has been read, parts of requests included."""
        self.unflushed: tuple[Callable[[int], None], ...] = ()
        """To be called back when what was sent is flushed."""
        self.undrained: tuple[Callable[[int], None], ...] = ()
        """To be called back when what had arrived at the flush is read."""
        self._drained_at = 0
        """How many bytes will have been read then."""

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
        """Note the request in hand as responded with the last response that is queued; if none is, in this turn."""
        if queued:
            queued[-1].on_flushed += self.take_in_hand()
        else:
            self.note_sent(self.take_in_hand())

    def note_sent(self, callbacks: tuple[Callable[[int], None], ...]) -> None:
        """Call back ``_QUIET_SECONDS`` after what is handed to the transport in this turn of the loop is flushed."""
        self.unflushed += callbacks
        self._look_later()

    def _look_later(self) -> None:
        if self._timer is None:
            self._timer = self._loop.call_later(_QUIET_SECONDS, self._note_flushed)

    def _note_flushed(self) -> None:
        """Call back if the operating system has all responses; while a client does not read, it has not."""
        self._timer = None
        if self._transport.get_write_buffer_size():
            self._look_later()
            return
        self.undrained += self.unflushed
        self.unflushed = ()
        self._drained_at = self.received_bytes + unread_bytes(self._descriptor)
        self.note_drained()

    def note_drained(self) -> None:
        """Call back if all that had arrived at the last flush is read."""
        if self.received_bytes >= self._drained_at:
            callbacks, self.undrained = self.undrained, ()
            for callback in callbacks:
                callback(self.received + self._reader.has_part)

    def forget(self) -> None:
        """Drop all callbacks: the connection is lost."""
        self.in_hand = self.unflushed = self.undrained = ()
        if self._timer is not None:
            self._timer.cancel()
