"""How late the event loop is: the delay with which a timer fires, as a histogram.

Everything a broker does happens on one loop, so whatever keeps the loop busy delays every request. The timer is late by
as much as any request that arrived when it was due.
"""

import asyncio
from bisect import bisect_left
from typing import Final

_INTERVAL_SECONDS: Final = 0.5
BOUNDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
"""Upper bounds of the buckets, in seconds; one more bucket has what is above."""


class LoopLag:
    """Measures from ``start`` to ``stop``."""

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS) + 1)
        """How many delays fell into each bucket."""
        self.total_seconds = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(_INTERVAL_SECONDS, self._fire, loop.time() + _INTERVAL_SECONDS)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def record(self, seconds: float) -> None:
        self.counts[bisect_left(BOUNDS, seconds)] += 1
        self.total_seconds += seconds

    def _fire(self, due: float) -> None:
        self.record(max(0.0, asyncio.get_running_loop().time() - due))
        self.start()
