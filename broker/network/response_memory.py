"""What clients that do not read their responses make this broker hold, in all, and what a fetch may still add to it.

A connection holds at most one large response, but a fetch may be 55 MiB and there are many connections. So the bytes
that wait in the transports are counted over all of them, with those that fetches have read and not yet handed over, and
a fetch gets at most a quarter of what is left. While clients read, that is more than any fetch asks for. The more is
held for those who do not, the smaller the responses become, for everyone, but never smaller than ``SMALLEST_GRANT``
(and a first batch is sent whatever its size): consumers that read go on.

Transports are counted while they are full, as they themselves say it; below that each holds little.

Many fetches may become due at once: one append ends the long polls of all consumers of a partition. What they read in
one turn of the loop is bounded too; a fetch that finds the turn spent reads in the next one.
"""

import asyncio
from typing import Final

SMALLEST_GRANT: Final = 128 * 1024
TURN_BYTES: Final = 8 << 20
"""Once so much was read in a turn of the loop, further fetches wait for the next turn."""
_SHARE: Final = 4


class ResponseMemory:
    """A count of bytes, and the share that is granted of what is left."""

    __slots__ = ("_max_bytes", "_read", "held")

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._read = 0
        """Bytes read in this turn of the loop."""
        self.held = 0
        """Bytes of responses that are read, or written to transports which are full."""

    def grant(self, wanted: int) -> int:
        """Bytes that a response may have which would like to have ``wanted``."""
        return min(wanted, max(SMALLEST_GRANT, (self._max_bytes - self.held) // _SHARE))

    @property
    def turn_is_spent(self) -> bool:
        """Whether a fetch that has not read yet shall do so in the next turn of the loop."""
        return self._read >= TURN_BYTES

    def spend(self, size: int) -> None:
        """Count what a fetch has read in this turn of the loop."""
        if size and not self._read:
            asyncio.get_running_loop().call_soon(self._begin_turn)
        self._read += size

    def _begin_turn(self) -> None:
        self._read = 0

    def hold(self, size: int) -> None:
        self.held += size

    def release(self, size: int) -> None:
        self.held -= size
        assert self.held >= 0, "more responses were released than held"
