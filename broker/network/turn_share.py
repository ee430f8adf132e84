"""How many requests all connections together begin in one turn of the loop.

Each connection begins a slice of its own requests in a turn (``connection``), but there may be thousands of them. So
they share ``TURN_REQUESTS``. When those are used up, a connection begins one request and no more until the next turn:
a client that has one request waits for one of each other client, not for a slice of each.

The count goes on from turn to turn and is renewed when it is used up: to renew it in each turn would have the loop look
for events once more after every request of a client that sends them one by one.
"""

import asyncio
from typing import Final

TURN_REQUESTS: Final = 512
"""Counted as connections count their slices: requests of up to 4 KiB, or fewer larger ones. Some milliseconds."""


class TurnShare:
    """What connections may still begin."""

    __slots__ = ("_is_spent", "left")

    def __init__(self) -> None:
        self.left = TURN_REQUESTS
        """What connections may still begin. One that wants less, and has begun less, need not call the methods."""
        self._is_spent = False

    def limit(self, wanted: int) -> int:
        """Return how much of its slice a connection may begin now: one request at least, if it has any of it left."""
        if wanted <= self.left:
            return wanted
        return min(wanted, max(self.left, 1))

    def spend(self, count: int) -> None:
        """Count what a connection has begun."""
        self.left -= count
        if self.left <= 0 and not self._is_spent:
            self._is_spent = True
            asyncio.get_running_loop().call_soon(self._renew)

    def _renew(self) -> None:
        self.left = TURN_REQUESTS
        self._is_spent = False
