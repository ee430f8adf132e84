"""What clients that do not read their responses make this broker hold, in all, and what a fetch may still add to it.

A connection holds at most one large response, of ``LARGEST_GRANT``, but there are many connections. So the bytes that
wait in the transports are counted over all of them, with those that fetches have read and not yet handed over, and a
fetch gets at most a quarter of what is left, or its share among those that wait. The more is held for clients that do
not read, the smaller the responses become, for everyone, but never smaller than ``SMALLEST_GRANT``, and a first batch
is sent whatever its size.

When nothing is left, a fetch gets ``FRUGAL_BYTES``, which the kernel takes from us at once unless the client has
stopped reading. So a client that reads makes progress, if its batches are no larger. Fetches of larger batches wait
until something was released: in turn one of a client that has read a large response before, the first come first, and
one of another, the last come first. So many connections that never read, or come again as soon as they were closed,
delay neither the ones nor the others by more than some rounds. Fetches of followers do not wait.

While nothing is left, clients are disconnected that have read nothing for ``PATIENCE_SECONDS``, the longest silent
first, and those that read so slowly that they need longer than ``LONGEST_RESPONSE_SECONDS`` for their response, until
half of the memory is free. A client that was only slow connects again and loses nothing.

Transports are counted while they are full, as they themselves say it; below that each holds little.

Many fetches may become due at once: one append ends the long polls of all consumers of a partition, and fetches that
came together have waited for room equally long. What they read in one turn of the loop is bounded too, and so is how
many of them read: a fetch that finds the turn spent reads in the next one, whatever has made it due.
"""

import asyncio
import logging
import math
from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

logger = logging.getLogger(__name__)

FRUGAL_BYTES: Final = 64 * 1024
SMALLEST_GRANT: Final = 128 * 1024
LARGEST_GRANT: Final = 4 << 20
"""To read so much from the page cache takes some milliseconds; ten times as much is a pause for all other clients."""
TURN_BYTES: Final = 4 << 20
"""Once so much was read in a turn of the loop, further fetches wait for the next turn."""
LEAST_READ_BYTES: Final = 32 * 1024
"""What a fetch counts at least that has looked for records, in this turn of the loop.

To look and to respond costs 50 to 100 µs, as much as to read and to send so many bytes, whether there was something or
not.
"""
_SEPARATE_TURNS_ABOVE: Final = TURN_BYTES // 2
"""Bytes from which on the count begins anew with the next turn, which takes a callback."""
PATIENCE_SECONDS: Final = 2.0
"""The kernel reports reads in portions, for a slow reader perhaps once in a second."""
LONGEST_RESPONSE_SECONDS: Final = 60.0
"""Clients wait 30 s for a response by default, from when they send the request."""
_JUDGED_AFTER_SECONDS: Final = 5.0
_LOOK_SECONDS: Final = 0.25
_LOG_SECONDS: Final = 5.0
"""Between two warnings."""
_SHARE: Final = 4

Read = Callable[[], None]


class Reading(NamedTuple):
    """How a client reads its responses, by the loop's clock and in bytes."""

    full_since: float
    """Since when its transport is full."""
    last_read: float
    """When it last read something."""
    read: int
    """What it has read since its transport is full."""
    unread: int
    """What it has still to read, in the transport and in the kernel."""
    held: int
    """What is kept in memory for it."""


class SlowClient(Protocol):
    """A connection whose transport is full."""

    def note_reading(self) -> Reading:
        """Look how far the client is."""

    def abort(self) -> None: ...


class ResponseMemory:
    """A count of bytes, the share that is granted of what is left, and who waits for it."""

    __slots__ = (
        "_admitting",
        "_logged",
        "_logged_at",
        "_looking",
        "_max_bytes",
        "_newcomer_is_next",
        "_newcomers",
        "_next_turn",
        "_read",
        "_readers",
        "_slow",
        "_turn_ends",
        "disconnected",
        "held",
    )

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._read = 0
        """Bytes read in this turn of the loop, and up to ``_SEPARATE_TURNS_ABOVE`` of those before."""
        self._turn_ends = False
        """The next turn begins with nothing read."""
        self._next_turn: deque[Read] = deque()
        """Fetches that shall read in a later turn, in order."""
        self._readers: dict[Read, None] = {}
        """Fetches that wait for room, of clients that have read a large response before."""
        self._newcomers: dict[Read, None] = {}
        """Fetches of other clients that wait for room."""
        self._newcomer_is_next = False
        self._admitting = False
        self._slow: dict[SlowClient, None] = {}
        self._looking = False
        """Slow clients will be looked at in a moment."""
        self.held = 0
        """Bytes of responses that are read, or written to transports which are full."""
        self.disconnected = 0
        """Clients that were disconnected because they did not read, so far."""
        self._logged = 0
        """The number of them that was logged."""
        self._logged_at = -math.inf

    def grant(self, wanted: int) -> int:
        """Return the bytes that a response may have of those that it wants."""
        if wanted <= SMALLEST_GRANT:
            return wanted
        waiting = len(self._readers) + len(self._newcomers)
        share = (self._max_bytes - self.held) // (waiting if waiting > _SHARE else _SHARE)
        if share >= wanted and wanted <= LARGEST_GRANT:
            return wanted
        return min(wanted, LARGEST_GRANT, max(SMALLEST_GRANT, share))

    def exchange(self, held: int, size: int) -> int:
        """Hold ``size`` bytes in the place of ``held``. Return ``size``."""
        if size > held:
            self.hold(size - held)
        elif size < held:
            self.release(held - size)
        return size

    def hold(self, size: int) -> None:
        assert size >= 0, "less than nothing cannot be held"
        self.held += size

    def release(self, size: int) -> None:
        self.held -= size
        assert self.held >= 0, "more responses were released than held"
        if self._readers or self._newcomers:
            self._admit_soon()

    # Who reads when

    @property
    def turn_is_spent(self) -> bool:
        """Whether no more shall be read in this turn of the loop."""
        return self._read >= TURN_BYTES

    @property
    def is_busy(self) -> bool:
        """Whether a fetch that has not read yet shall do so in a later turn of the loop."""
        return bool(self._next_turn) or self._read >= TURN_BYTES

    @property
    def is_full(self) -> bool:
        """Whether a fetch may have ``FRUGAL_BYTES`` and no larger batch."""
        return self.held >= self._max_bytes

    def postpone(self, read: Read, *, for_follower: bool) -> bool:
        """Call ``read`` in a later turn if a fetch may not read in this one. Returns whether that is so."""
        if for_follower:
            if self.turn_is_spent:
                asyncio.get_running_loop().call_soon(read)
            return self.turn_is_spent
        if not self.is_busy:
            return False
        self._next_turn.append(read)
        if not self.turn_is_spent:
            self._admit_soon()
        return True

    def await_room(self, read: Read, *, has_read: bool) -> None:
        """Call ``read`` when there is room. ``has_read``: the client has read a large response before.

        A fetch that waits already keeps its place.
        """
        (self._readers if has_read else self._newcomers)[read] = None
        if self.is_full:
            self._look_soon()
        else:
            self._admit_soon()

    def forget(self, read: Read) -> None:
        """Remove a fetch that waits for room. No effect if it does not."""
        self._readers.pop(read, None)
        self._newcomers.pop(read, None)

    def spend(self, size: int) -> None:
        """Count a fetch that has looked for records, and the bytes that it has read.

        Small fetches of several turns are counted as if of one, which costs each of them nothing.
        """
        self._read += size if size > LEAST_READ_BYTES else LEAST_READ_BYTES
        if self._read >= _SEPARATE_TURNS_ABOVE and not self._turn_ends:
            self._turn_ends = True
            asyncio.get_running_loop().call_soon(self._begin_turn)

    def _begin_turn(self) -> None:
        self._turn_ends = False
        self._read = 0
        self._admit()

    def _admit_soon(self) -> None:
        if not self._admitting:
            self._admitting = True
            asyncio.get_running_loop().call_soon(self._admit)

    def _admit(self) -> None:
        self._admitting = False
        while self._next_turn and not self.turn_is_spent:
            self._next_turn.popleft()()
        while (self._readers or self._newcomers) and not (self.turn_is_spent or self.is_full):
            self._next_in_need_of_room()()

    def _next_in_need_of_room(self) -> Read:
        takes_newcomer = bool(self._newcomers) and (self._newcomer_is_next or not self._readers)
        self._newcomer_is_next = not takes_newcomer
        if takes_newcomer:
            return self._newcomers.popitem()[0]
        first = next(iter(self._readers))
        del self._readers[first]
        return first

    # Who does not read

    def add_slow(self, client: SlowClient) -> None:
        """Note that the client's transport is full."""
        self._slow[client] = None
        if self.is_full:
            self._look_soon()

    def remove_slow(self, client: SlowClient) -> None:
        """Note that the client's transport has room again, or is closed. No effect if it was not full."""
        self._slow.pop(client, None)

    def _look_soon(self) -> None:
        if not self._looking:
            self._looking = True
            asyncio.get_running_loop().call_later(_LOOK_SECONDS, self._look)

    def _look(self) -> None:
        self._looking = False
        readings = [(client, client.note_reading()) for client in self._slow]
        if self.is_full or ((self._readers or self._newcomers) and self._excess > 0):
            self._disconnect(readings)
            self._look_soon()

    @property
    def _excess(self) -> int:
        """Bytes above the half of the memory that shall be free for clients that read."""
        return self.held - self._max_bytes // 2

    def _disconnect(self, readings: list[tuple[SlowClient, Reading]]) -> None:
        """Make room by disconnecting clients that do not read, or hardly, until half is free."""
        now = asyncio.get_running_loop().time()
        hopeless = [(client, reading) for client, reading in readings if is_too_slow(reading, now)]
        excess = self._excess
        for client, reading in sorted(hopeless, key=lambda entry: entry[1].last_read):
            if excess <= 0:
                break
            excess -= reading.held
            self.disconnected += 1
            client.abort()
        if self.disconnected > self._logged and now - self._logged_at >= _LOG_SECONDS:
            logger.warning(
                "Disconnected %d clients that read nothing for %.0f s, or too slowly to read a response within %.0f s: "
                "responses that wait to be read take all of oncelog.responses.max.bytes",
                self.disconnected - self._logged,
                PATIENCE_SECONDS,
                LONGEST_RESPONSE_SECONDS,
            )
            self._logged, self._logged_at = self.disconnected, now


def is_too_slow(reading: Reading, now: float) -> bool:
    """Return whether a client has stopped reading, or would not have read its response in time. Pure."""
    if now - reading.last_read >= PATIENCE_SECONDS:
        return True
    elapsed = now - reading.full_since
    return elapsed >= _JUDGED_AFTER_SECONDS and reading.unread * elapsed > reading.read * LONGEST_RESPONSE_SECONDS
