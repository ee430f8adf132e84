"""The order of a connection's requests and responses: what a client can have known when it sent a request.

A request that began to arrive before a response had arrived at the client was not sent because of that response. Nor
does one count that arrives within ``QUIET_SECONDS`` of it: clients wait longer before they repeat a request, and what
was sent before may still be under way. What counts is the arrival at the kernel, on both sides: the client's kernel
acknowledges what it has, and of what it had to send before, as much as the window allowed has then come. How many
requests the socket's queue holds is not known, so their number is taken once all of it has been read. Responses leave
in the order of their requests, so one that is ready leaves with the last of those that it waits for.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Protocol

from oncelog.broker.network.frames import FrameReader
from oncelog.broker.network.response_writer import ResponseWriter
from oncelog.broker.network.socket_queues import unread_bytes

QUIET_SECONDS: Final = 0.01


class QueuedResponse(Protocol):
    """The place of a response that is not sent yet."""

    on_arrived: tuple[Callable[[int], None], ...]


class _Sent(NamedTuple):
    """A response that was handed to the transport."""

    quiet_until: float
    callbacks: tuple[Callable[[int], None], ...]


class ConnectionOrder:
    """Implements ``oncelog.broker.dispatch.request.RequestOrder`` for one connection."""

    __slots__ = (
        "_arriving",
        "_awaited",
        "_descriptor",
        "_drained_at",
        "_frames",
        "_loop",
        "_reader",
        "_sent",
        "_writer",
        "in_hand",
        "received",
        "received_bytes",
        "timer",
        "undrained",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        writer: ResponseWriter,
        reader: FrameReader,
        frames: deque[memoryview],
        descriptor: int,
    ) -> None:
        """Follow a connection by its ``frames``, which are received and not begun, and its socket's ``descriptor``."""
        self._loop = loop
        self.timer: asyncio.TimerHandle | None = None
        """For reading only: the next look at what has arrived."""
        self._descriptor = descriptor
        self._writer = writer
        self._reader = reader
        self._frames = frames
        self.received = 0
        """Whole requests that have come."""
        self.in_hand: tuple[Callable[[int], None], ...] = ()
        """To be called back when the response to the request in hand has arrived, until that response has its place."""
        self.received_bytes = 0
        """What has been read, parts of requests included."""
        self._sent: deque[_Sent] = deque()
        self._arriving: tuple[Callable[[int], None], ...] = ()
        """To be called back when the client has so much of what was sent as ``_awaited`` says, in bytes."""
        self._awaited = 0
        self.undrained: tuple[Callable[[int], None], ...] = ()
        """To be called back when what had come by then is read."""
        self._drained_at = 0
        """How many bytes will have been read then."""

    def request_number(self) -> int:
        """Return the place of the request that is being dispatched, or whose coroutine runs, from 1."""
        return self.received - len(self._frames)

    def when_responded(self, callback: Callable[[int], None]) -> None:
        """Call back once the response to that request has arrived at the client's machine.

        The callback gets the number of requests that have begun to arrive here by then.
        """
        self.in_hand += (callback,)

    def take_in_hand(self) -> tuple[Callable[[int], None], ...]:
        """Return the callbacks of the request in hand, whose response is in its place from now on."""
        callbacks, self.in_hand = self.in_hand, ()
        return callbacks

    def place_in_hand(self, queued: Sequence[QueuedResponse]) -> None:
        """Note the request in hand as responded with the last response that is queued; if none is, in this turn."""
        if queued:
            queued[-1].on_arrived += self.take_in_hand()
        else:
            self.note_sent(self.take_in_hand())

    def note_sent(self, callbacks: tuple[Callable[[int], None], ...]) -> None:
        """Note that the response that these wait for is handed to the transport in this turn of the loop."""
        self._sent.append(_Sent(self._loop.time() + QUIET_SECONDS, callbacks))
        if self.timer is None:
            self._look_at(self._sent[0].quiet_until)

    def _look_at(self, time: float) -> None:
        self.timer = self._loop.call_at(time, self._look)

    def _look(self) -> None:
        """Call back for what the client has, and look again for what it has not."""
        self.timer = None
        now = self._loop.time()
        if not self._arriving:
            while self._sent and self._sent[0].quiet_until <= now:
                self._arriving += self._sent.popleft().callbacks
            self._awaited = self._writer.bytes_out
        if self._writer.arrived_bytes() < self._awaited:
            self._look_at(now + QUIET_SECONDS)
            return
        self.undrained += self._arriving
        self._arriving = ()
        self._drained_at = self.received_bytes + unread_bytes(self._descriptor)
        if self._sent:
            self._look_at(self._sent[0].quiet_until)
        self.note_drained()

    def note_drained(self) -> None:
        """Call back if all that had come when the response arrived is read."""
        if self.received_bytes >= self._drained_at:
            callbacks, self.undrained = self.undrained, ()
            for callback in callbacks:
                callback(self.received + self._reader.has_part)

    def forget(self) -> None:
        """Drop all callbacks: the connection is lost."""
        self.in_hand = self._arriving = self.undrained = ()
        self._sent.clear()
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
