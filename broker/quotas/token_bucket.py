"""``TokenBucket``: an allowance that fills steadily, for work that comes in bursts (KIP-599). Pure.

It holds what the limit allows for all windows together, and is full at first. A use takes tokens out, and may leave a
debt; while there is one, nothing more may be used. Source: Kafka's ``TokenBucket``.
"""

from oncelog.broker.quotas.windowed_rate import Windows


class TokenBucket:
    """The tokens of one owner of a limit. Times are seconds of one clock, and do not go back."""

    __slots__ = ("_filled_at", "_limit", "_tokens")

    def __init__(self) -> None:
        self._tokens: float | None = None
        """None: full, whatever the limit is."""
        self._filled_at = 0.0
        self._limit = 0.0

    def use(self, tokens: float, limit: float, now: float, windows: Windows) -> None:
        """Take tokens out, whether they are there or not. ``limit`` is what comes in per second."""
        self._tokens = min(limit * windows.total_seconds, self._fill(limit, now, windows) - tokens)

    def delay(self, limit: float, now: float, windows: Windows) -> float:
        """Return the seconds until the debt is paid; 0 if there is none."""
        return max(0.0, -self._fill(limit, now, windows) / limit)

    def is_full(self, now: float, windows: Windows) -> bool:
        """Return whether a new object would be the same."""
        return self._tokens is None or self._fill(self._limit, now, windows) >= self._limit * windows.total_seconds

    def _fill(self, limit: float, now: float, windows: Windows) -> float:
        burst = limit * windows.total_seconds
        before = burst if self._tokens is None else self._tokens + limit * (now - self._filled_at)
        self._tokens, self._filled_at, self._limit = min(burst, before), now, limit
        return self._tokens
