"""``RecheckPause``: the least time for which a shortage is believed, so that leaderships do not move back and forth."""

from typing import Final

_FIRST_MS: Final = 1_000
_LONGEST_MS: Final = 60_000
_SOON_MS: Final = 60_000


class RecheckPause:
    """The pause before a shortage is checked again: longer each time that it begins again within a minute (backoff)."""

    __slots__ = ("_backoff_ms", "_next_check_ms")

    def __init__(self) -> None:
        self._backoff_ms = _FIRST_MS
        self._next_check_ms = 0

    def begin(self, now_ms: int) -> None:
        """Note that a shortage begins."""
        is_soon = self._next_check_ms and now_ms < self._next_check_ms + _SOON_MS
        self._backoff_ms = min(2 * self._backoff_ms, _LONGEST_MS) if is_soon else _FIRST_MS
        self._next_check_ms = now_ms + self._backoff_ms

    def is_over(self, now_ms: int) -> bool:
        """Return whether to check again. A longer wait than the backoff shows that the clock was set back."""
        return not 0 < self._next_check_ms - now_ms <= self._backoff_ms

    def end(self, now_ms: int) -> None:
        """Note that the shortage is over: the next pause depends on how soon another one begins."""
        self._next_check_ms = now_ms
