"""How many requests all connections together begin in one turn of the loop.

Each connection begins a slice of its own requests in a turn (``connection``), but there may be thousands of them. So
they share ``TURN_UNITS``. When those are used up, a connection begins one small request and no more until the next
turn: a client that has one request waits for one of each other client, not for a slice of each. A request that is not
small waits until the units suffice; those that wait begin in the order in which they came. So a hundred connections
that send a long request each in the same moment are a hundred turns of the loop, not one.

The count goes on from turn to turn and is renewed when it is used up: to renew it in each turn would have the loop look
for events once more after every request of a client that sends them one by one.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

TURN_UNITS: Final = 512
"""Counted as connections count their slices (``units_of``). Some milliseconds."""
SMALL: Final = 256
"""A smaller request is one unit."""
_PRODUCE: Final = 0
_PRODUCE_SHIFT: Final = 12
"""A produce is counted by 4 KiB: its records are checked as a whole, or in slices (``SlicedWork``)."""
_SHIFT: Final = 8
"""Of other requests 256 bytes are perhaps twenty elements, which are decoded at once."""


def units_of(frame: memoryview) -> int:
    """Return what a request costs of a slice and of a turn, by its size and API: one if it is small."""
    size = len(frame)
    if size < SMALL:
        return 1
    return 1 + (size >> (_PRODUCE_SHIFT if frame[1] == _PRODUCE else _SHIFT))


class TurnShare:
    """What connections may still begin."""

    __slots__ = ("_is_spent", "_waiting", "left")

    def __init__(self) -> None:
        self.left = TURN_UNITS
        """What connections may still begin. One that wants less, and has begun less, need not call the methods."""
        self._is_spent = False
        self._waiting: deque[Callable[[], None]] = deque()

    def limit(self, wanted: int) -> int:
        """Return how much of its slice a connection may begin now: one unit at least, if it has any of it left."""
        if wanted <= self.left:
            return wanted
        return min(wanted, max(self.left, 1))

    def spend(self, count: int) -> None:
        """Count what a connection has begun."""
        self.left -= count
        if self.left <= 0 and not self._is_spent:
            self._is_spent = True
            asyncio.get_running_loop().call_soon(self._renew)

    def await_turn(self, begin: Callable[[], None]) -> None:
        """Call ``begin`` in the turn that has units for it. Only while there are none (``left``)."""
        self._waiting.append(begin)

    def _renew(self) -> None:
        self.left = TURN_UNITS
        while self._waiting and self.left > 0:
            self._waiting.popleft()()
        if self.left <= 0:
            asyncio.get_running_loop().call_soon(self._renew)
        else:
            self._is_spent = False
