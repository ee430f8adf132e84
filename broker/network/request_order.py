"""The order of a connection's requests and responses: what a client can have known when it sent a request.

What counts as sent after a response has to arrive after a moment of *quiet*: everything that had arrived is read, no
request is half there, and nothing has come for ``QUIET_SECONDS``, or for a round trip and a half if that is longer. And
when it arrives, the client's kernel must have acknowledged the response; the acknowledgement may come with it. So a
request does not count that lay behind another one in a buffer of the client, which empties as fast as the window
allows. Clients wait longer before they repeat a request.

A connection that carries much else, or whose client repeats at once, may have no such moment. ``_PATIENCE_SECONDS``
after the first one could have been, or ``_LONGER_PATIENCE_SECONDS`` if much came, it is enough that what had arrived
by then is read. How many requests the socket's
queue holds is not known, so their number is taken once all of it has been read. What was sent after the response need
not be acknowledged: on a busy connection something is always under way.

Responses leave in the order of their requests, so one that is ready leaves with the last of those that it waits for.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Protocol

from oncelog.broker.network.frames import FrameReader
from oncelog.broker.network.response_writer import ResponseWriter
from oncelog.broker.network.socket_queues import round_trip_seconds, unread_bytes

QUIET_SECONDS: Final = 0.003
_LONGEST_QUIET_SECONDS: Final = 0.5
_ROUND_TRIPS: Final = 1.5
_LONGEST_LOOK_SECONDS: Final = 0.25
"""Between two looks at a connection that is not quiet."""
_PATIENCE_SECONDS: Final = 0.05
_LONGER_PATIENCE_SECONDS: Final = 0.25
_MUCH_BYTES: Final = 1 << 18
"""So much, when it comes within the patience, may have lain in a buffer of the client: then the patience is longer."""


class _Awaited(NamedTuple):
    position: int
    """How many bytes of responses the client's machine has when it has this one."""
    callback: Callable[[int], None]


class QueuedResponse(Protocol):
    """The place of a response that is not sent yet."""

    on_arrived: tuple[Callable[[int], None], ...]


class _Settling:
    """Responses whose client is looked at no more: what had arrived is to be read, and they are to be acknowledged."""

    __slots__ = ("awaited", "drained_at", "received_then")

    def __init__(self, awaited: deque[_Awaited], drained_at: int) -> None:
        self.awaited = awaited
        self.drained_at = drained_at
        """How many bytes will have been read then."""
        self.received_then: int | None = None
        """How many requests had begun to arrive; None until they are read."""


class ConnectionOrder:
    """Implements ``oncelog.broker.dispatch.request.RequestOrder`` for one connection."""

    __slots__ = (
        "_awaited",
        "_descriptor",
        "_frames",
        "_loop",
        "_noted_at",
        "_pause",
        "_quiet_from",
        "_reader",
        "_received_then",
        "_sent",
        "_step",
        "_writer",
        "in_hand",
        "received",
        "received_at",
        "received_bytes",
        "settling",
        "timer",
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
        self.received_bytes = 0
        """What has been read, parts of requests included, and what TLS added to it."""
        self.received_at = 0.0
        """When something was read last, by the loop's clock."""
        self.in_hand: tuple[Callable[[int], None], ...] = ()
        """To be called back when the response to the request in hand has arrived, until that response has its place."""
        self._sent: list[Callable[[int], None]] = []
        """Of responses that are handed to the transport in this turn."""
        self._awaited: deque[_Awaited] = deque()
        """Of responses that wait for a quiet moment from ``_quiet_from`` on."""
        self._quiet_from = self._noted_at = 0.0
        self._received_then = 0
        """``received_bytes`` at ``_noted_at``, when the first of these responses was sent."""
        self._pause = self._step = QUIET_SECONDS
        self.settling: list[_Settling] = []

    def request_number(self) -> int:
        """Return the place of the request that is being dispatched, or whose coroutine runs, from 1."""
        return self.received - len(self._frames)

    def is_last(self) -> bool:
        """Return whether nothing has come behind the request in hand."""
        return not (self._frames or self._reader.has_part or unread_bytes(self._descriptor))

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
        now = self._loop.time()
        is_first = not (self._sent or self._awaited)
        if not self._sent:
            self._loop.call_soon(self._place_sent)
        self._sent += callbacks
        if is_first:
            self._pause = self._step = _pause(self._descriptor)
            self._noted_at, self._received_then = now, self.received_bytes
        self._quiet_from = now + self._pause
        if is_first:
            if self.timer is not None:
                self.timer.cancel()
            self._look_at(self._quiet_from)

    def _place_sent(self) -> None:
        position = self._writer.bytes_out
        self._awaited.extend(_Awaited(position, callback) for callback in self._sent)
        self._sent.clear()

    def _look_at(self, time: float) -> None:
        self.timer = self._loop.call_at(time, self._look)

    def _look(self) -> None:
        """Look whether the connection is quiet, or has not been for too long; and for acknowledgements."""
        self.timer = None
        self._place_sent()
        now = self._loop.time()
        if self._awaited:
            self._look_for_quiet(now)
        self.note_arriving()
        self._step = min(2 * self._step, _LONGEST_LOOK_SECONDS)
        if self._awaited:
            self._look_at(min(max(self._quiet_from, now + self._step), self._patient_until()))
        elif self.settling:
            self._look_at(now + self._step)

    def _look_for_quiet(self, now: float) -> None:
        unread = unread_bytes(self._descriptor) + self._reader.held
        if now >= self._patient_until() or self._is_quiet(now, unread):
            self.settling.append(_Settling(self._awaited, self.received_bytes + unread))
            self._awaited = deque()
            self.note_read()

    def _patient_until(self) -> float:
        is_much = self.received_bytes - self._received_then > _MUCH_BYTES
        return self._noted_at + self._pause + (_LONGER_PATIENCE_SECONDS if is_much else _PATIENCE_SECONDS)

    def _is_quiet(self, now: float, unread: int) -> bool:
        is_whole = not (unread or self._frames or self._reader.has_part)
        return is_whole and now >= max(self._quiet_from, self.received_at + self._pause)

    def note_arriving(self) -> None:
        """Call back for the responses that the client had when it sent what is about to be read."""
        if not self.settling:
            return
        arrived = self._writer.arrived_bytes()
        for settling in self.settling:
            awaited, received_then = settling.awaited, settling.received_then
            while received_then is not None and awaited and awaited[0].position <= arrived:
                awaited.popleft().callback(received_then)
        self.settling = [settling for settling in self.settling if settling.awaited]

    def note_read(self) -> None:
        """Take the number of requests where all that had arrived is read."""
        for settling in self.settling:
            if settling.received_then is None and self.received_bytes >= settling.drained_at:
                settling.received_then = self.received + self._reader.has_part
        self.note_arriving()

    def forget(self) -> None:
        """Drop all callbacks: the connection is lost."""
        self.in_hand = ()
        self._sent.clear()
        self._awaited.clear()
        self.settling.clear()
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None


def _pause(descriptor: int) -> float:
    """Return for how long nothing may come before a connection counts as quiet, in seconds."""
    return min(max(QUIET_SECONDS, _ROUND_TRIPS * round_trip_seconds(descriptor)), _LONGEST_QUIET_SECONDS)
