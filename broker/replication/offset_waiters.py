"""Callbacks that wait until a log has reached an offset: the high watermark, or the flushed end."""

import heapq
import logging
from collections.abc import Callable
from typing import Final, TypeAlias

from oncelog.broker.process.containment import Containment
from oncelog.protocol.errors import ErrorCode

OnReached: TypeAlias = Callable[[ErrorCode], None]
"""Called with NONE, or with the reason why the offset will not be reached here."""

_log = logging.getLogger(__name__)
_NEVER: Final = 1 << 63
"""Above every offset."""


class OffsetWaiters:
    """Calls each waiter exactly once, in the order of the offsets, equal ones in the order of arrival.

    The first unforeseen exception of a waiter goes on to the caller when the others have been called.
    """

    __slots__ = ("_arrivals", "_heap", "_is_releasing", "_reached", "lowest")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, OnReached]] = []
        self._arrivals = 0
        self._reached = -1
        self._is_releasing = False
        self.lowest = _NEVER
        """The lowest offset of a waiter: below it ``release`` has nothing to do."""

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, offset: int, callback: OnReached) -> None:
        self._arrivals += 1
        heapq.heappush(self._heap, (offset, self._arrivals, callback))
        self._note_lowest()

    def release(self, reached: int) -> None:
        """Call the waiters for ``reached`` or less. A callback may add waiters, also such that are due at once.

        A callback may also append, and so reach here again: then the waiters are left to the release that is under
        way. If each were called from the one before it, some thirty of them would fill the stack.
        """
        if self._is_releasing:
            self._reached = max(self._reached, reached)
            return
        self._reached = reached
        self._is_releasing = True
        is_done = False
        try:
            # A callback may replace the heap: it may fail all waiters.
            while self._heap and self._heap[0][0] <= self._reached:
                _, _, callback = heapq.heappop(self._heap)
                self._note_lowest()
                callback(ErrorCode.NONE)
            is_done = True
        finally:
            if not is_done:
                self._release_rest()
            self._is_releasing = False

    def _release_rest(self) -> None:
        """Call the other waiters after the exception of one. It goes on to the caller; theirs are logged."""
        contained = Containment(_log_failure)
        while self._heap and self._heap[0][0] <= self._reached:
            _, _, callback = heapq.heappop(self._heap)
            self._note_lowest()
            with contained:
                callback(ErrorCode.NONE)

    def fail(self, error: ErrorCode) -> None:
        """Call all present waiters with an error; their offsets will not be reached."""
        failed, self._heap = self._heap, []
        self._note_lowest()
        failures: list[Exception] = []
        contained = Containment(failures.append)
        for _, _, callback in sorted(failed, key=lambda waiter: waiter[:2]):
            with contained:
                callback(error)
        if failures:
            raise failures[0]

    def forget(self, callback: OnReached) -> None:
        """Remove a waiter that gave up; this walks the heap, since giving up is rare."""
        self._heap = [waiter for waiter in self._heap if waiter[2] != callback]
        heapq.heapify(self._heap)
        self._note_lowest()

    def _note_lowest(self) -> None:
        self.lowest = self._heap[0][0] if self._heap else _NEVER


def _log_failure(error: Exception) -> None:
    _log.error("Another waiter of the same offsets failed, too", exc_info=error)
