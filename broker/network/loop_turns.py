"""``LoopTurns``: since when the event loop has turned, whether or not it stood still in between.

A loop that stands still, because its process was stopped or something takes long, accepts afterwards what the kernel
has connected meanwhile. Its clock has gone on, so that a connection's age does not follow from when it was accepted.
"""

import asyncio
from collections import deque
from typing import Final

from oncelog.coordinator.ports import NEVER

_TURN_SECONDS: Final = 0.5
_TURNS: Final = 2
"""The loop looks at all sockets between two timers, so that it has accepted what was connected before the first."""


class LoopTurns:
    """A timer that notes when it fires, from ``start`` to ``stop``."""

    def __init__(self) -> None:
        self._noted: deque[float] = deque(maxlen=_TURNS)
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin to note turns; the loop listens already."""
        self._timer = asyncio.get_running_loop().call_later(_TURN_SECONDS, self._turn)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def note(self, now: float) -> None:
        """Note that the loop turns at this time of its clock."""
        self._noted.append(now)

    def all_accepted_until(self) -> float:
        """Return a time of the loop's clock: what was connected before it has been accepted; ``NEVER`` at first."""
        return self._noted[0] if len(self._noted) == _TURNS else NEVER

    def _turn(self) -> None:
        self.note(asyncio.get_running_loop().time())
        self.start()
