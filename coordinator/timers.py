"""Timers for very many callbacks: one timer of the event loop for each delay."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable


class Deadlines:
    """Callbacks after one fixed delay: a single timer of the loop, however many of them wait."""

    __slots__ = ("_delay", "_last_key", "_timer", "_waiting")

    def __init__(self, delay_ms: int) -> None:
        self._delay = delay_ms / 1000
        self._waiting: OrderedDict[int, tuple[float, Callable[[], None]]] = OrderedDict()
        self._last_key = 0
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, callback: Callable[[], None]) -> int:
        """Call back after the delay, unless the returned key is cancelled before."""
        loop = asyncio.get_running_loop()
        self._last_key += 1
        self._waiting[self._last_key] = (loop.time() + self._delay, callback)
        if self._timer is None:
            self._timer = loop.call_later(self._delay, self._fire)
        return self._last_key

    def cancel(self, key: int) -> None:
        """Forget a callback; one that was called already is no error."""
        self._waiting.pop(key, None)

    def stop(self) -> None:
        """Forget all of them."""
        self._waiting.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _fire(self) -> None:
        """Call what is due. They were added in the order in which they are due."""
        loop = asyncio.get_running_loop()
        try:
            while self._waiting:
                key = next(iter(self._waiting))
                when, callback = self._waiting[key]
                if when > loop.time():
                    break
                del self._waiting[key]
                callback()
        finally:  # The timer counts as set until here, so that callbacks may add.
            self._timer = None
            if self._waiting:
                when, _ = next(iter(self._waiting.values()))
                self._timer = loop.call_at(when, self._fire)


class Backoff:
    """Callbacks after a delay that doubles with every attempt up to a limit, on a handful of timers."""

    __slots__ = ("_steps",)

    def __init__(self, first_ms: int, limit_ms: int) -> None:
        delays = [first_ms]
        while delays[-1] < limit_ms:
            delays.append(min(2 * delays[-1], limit_ms))
        self._steps = [Deadlines(delay) for delay in delays]

    def __len__(self) -> int:
        return sum(map(len, self._steps))

    def add(self, attempt: int, callback: Callable[[], None]) -> None:
        """Call back before the ``attempt``-th attempt after the first one (1, 2, …)."""
        self._steps[min(attempt, len(self._steps)) - 1].add(callback)

    def stop(self) -> None:
        for step in self._steps:
            step.stop()
