"""``Mute``: the time for which a connection begins no request and is not read, because its client is throttled."""

import asyncio
from collections.abc import Callable


class Mute:
    """That of one connection. A longer time replaces a shorter one."""

    __slots__ = ("_changed", "_loop", "_timer", "is_on")

    def __init__(self, loop: asyncio.AbstractEventLoop, changed: Callable[[], None]) -> None:
        """Call ``changed`` when the time has begun, in the next turn of the loop, and when it has ended."""
        self._loop = loop
        self._changed: Callable[[], None] | None = changed
        self._timer: asyncio.TimerHandle | None = None
        self.is_on = False

    def begin(self, seconds: float) -> None:
        """Be on for some seconds, or for longer if that was to be so already."""
        until = self._loop.time() + seconds
        if self._changed is None or (self._timer is not None and self._timer.when() >= until):
            return
        if self._timer is None:
            self._loop.call_soon(self._notify)
        else:
            self._timer.cancel()
        self.is_on = True
        self._timer = self._loop.call_at(until, self._end)

    def forget(self) -> None:
        """Take the timer and the callback away: the connection is lost, and both reference it."""
        self._changed = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _end(self) -> None:
        self.is_on = False
        self._timer = None
        self._notify()

    def _notify(self) -> None:
        if self._changed is not None:
            self._changed()
