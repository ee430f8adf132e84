"""Callbacks that wait until a log has reached an offset: the high watermark, or the flushed end. Pure."""

import heapq
from collections.abc import Callable
from typing import Final, TypeAlias

from oncelog.protocol.errors import ErrorCode

OnReached: TypeAlias = Callable[[ErrorCode], None]
"""Called with NONE, or with the reason why the offset will not be reached here."""

_NEVER: Final = 1 << 63
"""Above every offset."""


class OffsetWaiters:
    """Calls each waiter exactly once, in the order of the offsets, equal ones in the order of arrival.

    An unforeseen exception of a waiter goes on to the caller when the others have been called.
    """

    __slots__ = ("_arrivals", "_heap", "lowest")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, OnReached]] = []
        self._arrivals = 0
        self.lowest = _NEVER
        """The lowest offset of a waiter: below it ``release`` has nothing to do."""

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, offset: int, callback: OnReached) -> None:
        self._arrivals += 1
        heapq.heappush(self._heap, (offset, self._arrivals, callback))
        self._note_lowest()

    def release(self, reached: int, error: ErrorCode = ErrorCode.NONE) -> None:
        """Call the waiters for ``reached`` or less. A callback may add waiters, also such that are due at once."""
        is_done = False
        try:
            while (
                self._heap and self._heap[0][0] <= reached
            ):  # A callback may replace the heap: it may fail all waiters.
                _, _, callback = heapq.heappop(self._heap)
                self._note_lowest()
                callback(error)
            is_done = True
        finally:
            if not is_done:
                self.release(reached, error)

    def fail(self, error: ErrorCode) -> None:
        """Call all present waiters with an error; their offsets will not be reached."""
        failed, self._heap = self._heap, []
        self._note_lowest()
        _fail_each([callback for _, _, callback in sorted(failed, key=lambda waiter: waiter[:2])], error)

    def forget(self, callback: OnReached) -> None:
        """Remove a waiter that gave up; this walks the heap, since giving up is rare."""
        self._heap = [waiter for waiter in self._heap if waiter[2] != callback]
        heapq.heapify(self._heap)
        self._note_lowest()

    def _note_lowest(self) -> None:
        self.lowest = self._heap[0][0] if self._heap else _NEVER


def _fail_each(callbacks: list[OnReached], error: ErrorCode) -> None:
    called = 0
    try:
        for callback in callbacks:
            called += 1
            callback(error)
    finally:
        if called < len(callbacks):
            _fail_each(callbacks[called:], error)
