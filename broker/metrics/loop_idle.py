"""How idle the event loop is: the share of the time in which its thread does not run.

Kafka has network threads and request handlers, and a share for each. Here one thread does the work of both. What a
thread spends on waiting for a disk or for a processor counts as idle; the delay of the loop's timers shows that.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple

_INTERVAL_SECONDS: Final = 1.0
_WINDOW: Final = 60
"""Intervals that a share is about."""
_NANOSECONDS: Final = 1_000_000_000


class _Moment(NamedTuple):
    """A moment, by the loop's clock, and how long the thread has run until then."""

    seconds: float
    busy_nanoseconds: int


class LoopIdle:
    """Measures from ``start`` to ``stop``, on the thread of the loop."""

    def __init__(self, thread_nanoseconds: Callable[[], int] = time.thread_time_ns) -> None:
        """Measure by a clock that goes on while the calling thread runs."""
        self._thread_nanoseconds = thread_nanoseconds
        self._moments: deque[_Moment] = deque(maxlen=_WINDOW + 1)
        self._began: _Moment | None = None
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        if self._began is None:
            self._began = self._now()
        self._moments.append(self._now())
        self._timer = asyncio.get_running_loop().call_later(_INTERVAL_SECONDS, self.start)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    @property
    def share(self) -> float | None:
        """From 0 to 1, of the last minute; None until something was measured."""
        return _idle_share(self._moments[0], self._now()) if self._moments else None

    @property
    def idle_nanoseconds(self) -> int | None:
        """Since the start."""
        if self._began is None:
            return None
        now = self._now()
        return round((now.seconds - self._began.seconds) * _NANOSECONDS * (_idle_share(self._began, now) or 0.0))

    def _now(self) -> _Moment:
        return _Moment(asyncio.get_running_loop().time(), self._thread_nanoseconds())


def _idle_share(begin: _Moment, end: _Moment) -> float | None:
    passed = (end.seconds - begin.seconds) * _NANOSECONDS
    if passed <= 0:
        return None
    return min(1.0, max(0.0, 1.0 - (end.busy_nanoseconds - begin.busy_nanoseconds) / passed))
