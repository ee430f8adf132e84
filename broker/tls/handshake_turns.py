"""``HandshakeTurns``: handshakes take turns, so that thousands of new connections do not hold up the others.

A step of a handshake that signs or derives keys takes a processor about a millisecond. The loop serves all connections
that have something to read before it looks at a timer or at a connection that it served already: two thousand clients
that connect at once would stop a broker for two seconds. So there is one step in a turn of the loop: a request that
comes meanwhile waits for one, and not for all.
"""

import asyncio
from collections import deque
from collections.abc import Callable


class HandshakeTurns:
    """The steps of all connections of one server that wait for their turn."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[Callable[[], None]] = deque()

    def add(self, step: Callable[[], None]) -> None:
        """Have a step called in a later turn of the loop. It must not raise."""
        self._waiting.append(step)
        if len(self._waiting) == 1:
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._waiting[0]()
        del self._waiting[0]
        if self._waiting:
            self._loop.call_soon(self._turn)
