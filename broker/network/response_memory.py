"""What clients that do not read their responses make this broker hold, in all, and what a fetch may still add to it.

A connection holds at most one large response, of ``LARGEST_GRANT``, but there are many connections. So the bytes that
wait in the transports are counted over all of them, with those that fetches have read and not yet handed over, and a
fetch gets at most a quarter of what is left, or its share among those that wait. The more is held for clients that do
not read, the smaller the responses become, for everyone, but never smaller than ``SMALLEST_GRANT``, and a first batch
is sent whatever its size.

When nothing is left, fetches wait until something is: in their order, except for those of followers, which do not wait.
Clients that have read nothing for ``PATIENCE_SECONDS`` are then disconnected, the longest silent first, until half of
the memory is free. So a thousand clients that never read hold what a hundred of them may, and delay others by about a
second. A client that was only slow connects again and loses nothing.

Transports are counted while they are full, as they themselves say it; below that each holds little.

Many fetches may become due at once: one append ends the long polls of all consumers of a partition. What they read in
one turn of the loop is bounded too; a fetch that finds the turn spent reads in the next one.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

logger = logging.getLogger(__name__)

SMALLEST_GRANT: Final = 128 * 1024
LARGEST_GRANT: Final = 4 << 20
"""To read so much from the page cache takes some milliseconds; ten times as much is a pause for all other clients."""
TURN_BYTES: Final = 4 << 20
"""Once so much was read in a turn of the loop, further fetches wait for the next turn."""
PATIENCE_SECONDS: Final = 1.0
_LOOK_SECONDS: Final = 0.25
_SHARE: Final = 4


class SlowClient(Protocol):
    """A connection whose transport is full."""

    @property
    def unread_bytes(self) -> int: ...

    @property
    def unread_since(self) -> float:
        """When its client last read something, by the loop's clock."""

    def note_reading(self) -> None:
        """Look how far the client is."""

    def abort(self) -> None: ...


class ResponseMemory:
    """A count of bytes, the share that is granted of what is left, and who waits for it."""

    __slots__ = ("_admitting", "_looking", "_max_bytes", "_read", "_slow", "_waiting", "disconnected", "held")

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._read = 0
        """Bytes read in this turn of the loop."""
        self._waiting: deque[Callable[[], None]] = deque()
        """Fetches that shall read later, in order."""
        self._admitting = False
        self._slow: dict[SlowClient, None] = {}
        self._looking = False
        """Slow clients will be looked at in a moment."""
        self.held = 0
        """Bytes of responses that are read, or written to transports which are full."""
        self.disconnected = 0
        """Clients that were disconnected because they did not read, so far."""

    def grant(self, wanted: int) -> int:
        """Bytes that a response may have which would like to have ``wanted``."""
        share = (self._max_bytes - self.held) // max(_SHARE, len(self._waiting))
        return min(wanted, LARGEST_GRANT, max(SMALLEST_GRANT, share))

    def hold(self, size: int) -> None:
        self.held += size

    def release(self, size: int) -> None:
        self.held -= size
        assert self.held >= 0, "more responses were released than held"
        if self._waiting:
            self._admit_soon()

    # Who reads when

    @property
    def turn_is_spent(self) -> bool:
        """Whether a fetch that has not read yet shall do so in the next turn of the loop."""
        return self._read >= TURN_BYTES

    @property
    def is_full(self) -> bool:
        """Whether a fetch that has not read yet shall do so when something was released."""
        return self.held >= self._max_bytes

    def postpone(self, read: Callable[[], None], *, for_follower: bool) -> bool:
        """Call ``read`` later if a fetch may not read now. Returns whether that is so."""
        if for_follower:
            if self.turn_is_spent:
                asyncio.get_running_loop().call_soon(read)
            return self.turn_is_spent
        if not (self._waiting or self.turn_is_spent or self.is_full):
            return False
        self._waiting.append(read)
        if self.is_full:
            self._look_soon()
        elif not self.turn_is_spent:
            self._admit_soon()
        return True

    def spend(self, size: int) -> None:
        """Count what a fetch has read in this turn of the loop."""
        if size and not self._read:
            asyncio.get_running_loop().call_soon(self._begin_turn)
        self._read += size

    def _begin_turn(self) -> None:
        self._read = 0
        self._admit()

    def _admit_soon(self) -> None:
        if not self._admitting:
            self._admitting = True
            asyncio.get_running_loop().call_soon(self._admit)

    def _admit(self) -> None:
        self._admitting = False
        while self._waiting and not self.turn_is_spent and not self.is_full:
            self._waiting.popleft()()

    # Who does not read

    def add_slow(self, client: SlowClient) -> None:
        """The client's transport is full."""
        self._slow[client] = None
        if self.is_full:
            self._look_soon()

    def remove_slow(self, client: SlowClient) -> None:
        """The client's transport has room again, or is closed. No effect if it was not full."""
        self._slow.pop(client, None)

    def _look_soon(self) -> None:
        if not self._looking:
            self._looking = True
            asyncio.get_running_loop().call_later(_LOOK_SECONDS, self._look)

    def _look(self) -> None:
        self._looking = False
        for client in list(self._slow):
            client.note_reading()
        if self.is_full or (self._waiting and self._excess > 0):
            self._disconnect(asyncio.get_running_loop().time() - PATIENCE_SECONDS)
            self._look_soon()

    @property
    def _excess(self) -> int:
        """Bytes above the half of the memory that shall be free for clients that read."""
        return self.held - self._max_bytes // 2

    def _disconnect(self, before: float) -> None:
        """Make room by disconnecting clients that have read nothing since ``before``, until half is free."""
        silent = sorted((client for client in self._slow if client.unread_since <= before), key=_unread_since)
        excess, count = self._excess, 0
        for client in silent:
            if excess <= 0:
                break
            excess -= client.unread_bytes
            count += 1
            client.abort()
        self.disconnected += count
        if count:
            logger.warning(
                "Disconnected %d clients that read nothing for %.0f s: %d bytes of responses waited to be read",
                count,
                PATIENCE_SECONDS,
                self.held,
            )


def _unread_since(client: SlowClient) -> float:
    return client.unread_since
