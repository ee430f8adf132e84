"""``ResponseWriter``: the sending side of a connection, and how its client reads the responses.

Responses that are ready together are sent in one write. If a client does not read, the transport keeps what the kernel
does not take. It counts as full above ``_WRITE_HIGH_WATER``, or, while it has a part of a large response, as soon as
anything is left, because such a response is kept whole until all of it is sent. What is kept while the transport is
full is counted in ``ResponseMemory``.
"""

import asyncio
from typing import Final

from oncelog.broker.dispatch.dispatcher import ResponseBuffers
from oncelog.broker.dispatch.request import ConnectionInfo
from oncelog.broker.network.response_memory import Reading, ResponseMemory
from oncelog.broker.network.socket_queues import unacknowledged_bytes

_WRITE_HIGH_WATER: Final = 128 * 1024
_JOIN_BELOW: Final = 16 * 1024
"""Copying so little together costs less than handing over many buffers."""


class ResponseWriter:
    """The responses of one connection that the transport was given. Times are seconds of the loop's clock."""

    __slots__ = (
        "_full_at",
        "_full_since",
        "_held",
        "_info",
        "_large",
        "_last_read",
        "_memory",
        "_read_then",
        "_transport",
        "bytes_out",
        "is_paused",
    )

    def __init__(self, transport: asyncio.Transport, info: ConnectionInfo, memory: ResponseMemory) -> None:
        self._transport = transport
        self._info = info
        self._memory = memory
        self._large = 0
        """The size of the large responses of which the transport has a part."""
        self._full_since = self._last_read = 0.0
        """Since when the transport is full, and when the client last read something meanwhile."""
        self._full_at = self._read_then = 0
        """What the client had read when the transport became full, and when it was last looked at."""
        self._held = 0
        """What is kept in memory for a client that does not read, as ``_memory`` counts it."""
        self.is_paused = False
        """The transport is full."""
        self.bytes_out = 0
        """Handed to the transport."""
        transport.set_write_buffer_limits(high=_WRITE_HIGH_WATER)

    def send(self, out: ResponseBuffers, size: int) -> None:
        """Hand buffers of ``size`` bytes in all to the transport."""
        if not out:
            return
        self.bytes_out += size
        if size > _WRITE_HIGH_WATER:
            self._begin_large(size)
        if len(out) == 1:
            self._transport.write(out[0])
        elif size <= _JOIN_BELOW:
            self._transport.write(b"".join(out))
        else:
            self._transport.writelines(out)
        if self._large and not self.is_paused:
            self._end_large()

    def _begin_large(self, size: int) -> None:
        """Have the transport count as full until a large response, all of it in memory, is sent."""
        self._large += size
        self._info.was_sent_much = True
        self._transport.set_write_buffer_limits(high=0)

    def _end_large(self) -> None:
        if self._large:
            self._large = 0
            self._transport.set_write_buffer_limits(high=_WRITE_HIGH_WATER)

    def pause(self, now: float) -> None:
        """Note that the transport is full."""
        self.is_paused = True
        self._full_since = self._last_read = now
        self._full_at = self._read_then = self.arrived_bytes()
        self._count_held()

    def resume(self) -> None:
        """Note that the transport has room again."""
        self.is_paused = False
        self._end_large()
        self.release()

    def release(self) -> None:
        """Count nothing as kept for the client."""
        self._hold(0)

    def note_reading(self, now: float) -> Reading:
        """Look how far a client is that has not read its responses."""
        self._count_held()
        unread = self._unread()
        read = self.bytes_out - unread
        if read > self._read_then:
            self._read_then = read
            self._last_read = now
        return Reading(self._full_since, self._last_read, read - self._full_at, unread, self._held)

    def arrived_bytes(self) -> int:
        """Return how much of ``bytes_out`` the client's machine has."""
        return self.bytes_out - self._unread()

    def _unread(self) -> int:
        """Return the bytes that were sent and have not arrived at the client."""
        return self._transport.get_write_buffer_size() + unacknowledged_bytes(self._info.descriptor)

    def _count_held(self) -> None:
        self._hold(max(self._transport.get_write_buffer_size(), self._large))

    def _hold(self, size: int) -> None:
        self._memory.hold(size)
        self._memory.release(self._held)
        self._held = size
