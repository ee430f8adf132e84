"""``WindowedRate``: what was used per second over the last windows, and the delay if that was too much. Pure.

A window begins with the first use after the one before it has ended. The rate is the sum of all windows that are not
obsolete, divided by the time since the oldest of them began, but at least by all windows but one: so a client may use
in a moment what its limit allows for ten seconds. The delay is the time after which the average of what was used is the
limit: (rate - limit) / limit times the time that the rate is taken over; that is what the limit needs for the sum, less
that time. Source: Kafka's ``Rate`` and ``QuotaUtils``.
"""

from collections import deque
from typing import Final, NamedTuple

_LEAST_SECONDS: Final = 0.001


class Windows(NamedTuple):
    """How a rate is taken."""

    number: int = 11
    seconds: float = 1.0

    @property
    def total_seconds(self) -> float:
        """Seconds after which a use does not count any more."""
        return self.number * self.seconds


class WindowedRate:
    """What one owner of a limit has used. Times are seconds of one clock, and do not go back."""

    __slots__ = ("_samples", "_total")

    def __init__(self) -> None:
        self._samples: deque[tuple[float, float]] = deque()
        """(begin of the window, what was used in it)"""
        self._total = 0.0

    def record(self, used: float, now: float, windows: Windows) -> None:
        """Count a use; a negative one takes back what was counted."""
        self._forget_obsolete(now, windows)
        samples = self._samples
        if samples and now - samples[-1][0] < windows.seconds:
            began, before = samples[-1]
            samples[-1] = (began, before + used)
        else:
            samples.append((now, used))
        self._total += used

    def delay(self, limit: float, now: float, windows: Windows) -> float:
        """Return for how many seconds the owner is to use nothing, 0 if the rate is not above the limit."""
        self._forget_obsolete(now, windows)
        return max(0.0, self._total / limit - self._seconds(now, windows))

    def room(self, limit: float, now: float, windows: Windows) -> float:
        """Return what can be used now without a delay; negative if there is one already."""
        self._forget_obsolete(now, windows)
        return limit * self._seconds(now, windows) - self._total

    def rate(self, now: float, windows: Windows) -> float:
        """Return what was used per second."""
        self._forget_obsolete(now, windows)
        return self._total / self._seconds(now, windows)

    def is_unused(self, now: float, windows: Windows) -> bool:
        """Return whether nothing counts: a new object would be the same."""
        self._forget_obsolete(now, windows)
        return not self._total

    def _seconds(self, now: float, windows: Windows) -> float:
        """Return the time that the rate is taken over."""
        elapsed = now - self._samples[0][0] if self._samples else 0.0
        missing = windows.number - 1 - int(elapsed / windows.seconds)
        return max(elapsed + max(missing, 0) * windows.seconds, _LEAST_SECONDS)

    def _forget_obsolete(self, now: float, windows: Windows) -> None:
        samples, total_seconds = self._samples, windows.total_seconds
        while samples and now - samples[0][0] >= total_seconds:
            self._total -= samples.popleft()[1]
        if not samples:
            self._total = 0.0  # What rounding has left.
