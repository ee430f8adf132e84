"""How much of replication is throttled: a rate for this broker, and the partitions that it counts for (KIP-73). Pure.

A broker has two, one for what it sends as leader and one for what it takes as follower. All that is replicated of a
throttled partition counts, but only replicas that are not in sync are held back: else throttling would drive those out
of the ISR that keep up. Nothing is cut short: what is under way may go over the rate, and then nothing follows until
the average of the last ``window_count`` windows is below it again. Source: Kafka's ``ReplicationQuotaManager.scala``.
"""

from collections import deque
from typing import Final

NO_LIMIT: Final = float("inf")
_A_MOMENT: Final = 0.001


class ReplicationQuota:
    """One direction. Times are seconds of one clock, sizes bytes."""

    __slots__ = ("_everything_of", "_limit", "_partitions", "_samples", "_total", "_window_count", "_window_seconds")

    def __init__(self, *, window_count: int = 11, window_seconds: float = 1.0) -> None:
        self._window_count = window_count
        self._window_seconds = window_seconds
        self._limit = NO_LIMIT
        self._everything_of: set[str] = set()
        self._partitions: dict[str, frozenset[int]] = {}
        self._samples: deque[tuple[float, int]] = deque()
        """(since when, how much)"""
        self._total = 0

    def set_limit(self, bytes_a_second: float) -> None:
        self._limit = bytes_a_second

    def throttle(self, topic: str, partitions: frozenset[int] | None) -> None:
        """Throttle these partitions of a topic, instead of those before; None: all of them."""
        self.release(topic)
        if partitions is None:
            self._everything_of.add(topic)
        elif partitions:
            self._partitions[topic] = partitions

    def release(self, topic: str) -> None:
        """Throttle no partition of this topic any more."""
        self._everything_of.discard(topic)
        self._partitions.pop(topic, None)

    def is_throttled(self, partition: tuple[str, int]) -> bool:
        if not (self._partitions or self._everything_of):
            return False
        topic, index = partition
        return index in self._partitions.get(topic, ()) or topic in self._everything_of

    def record(self, size: int, now: float) -> None:
        """Count bytes of a throttled partition that were replicated."""
        if self._samples and now - self._samples[-1][0] < self._window_seconds:
            since, known = self._samples.pop()
            self._samples.append((since, known + size))
        else:
            self._samples.append((now, size))
        self._total += size
        self._forget_old(now)

    def is_exceeded(self, now: float) -> bool:
        """Return whether replicas that are not in sync must wait."""
        if self._limit == NO_LIMIT:
            return False
        self._forget_old(now)
        if not self._samples:
            return False
        return self._total > self._limit * max(now - self._samples[0][0], self._window_seconds)

    def free_at(self, now: float) -> float:
        """Return when to check again whether the rate is exceeded, if it is now."""
        if not self.is_exceeded(now):
            return now
        since, _ = self._samples[0]
        averaged = since + self._total / self._limit if self._limit else NO_LIMIT
        forgotten = since + self._window_count * self._window_seconds
        return min(averaged, forgotten) + _A_MOMENT

    def _forget_old(self, now: float) -> None:
        while self._samples and now - self._samples[0][0] >= self._window_count * self._window_seconds:
            self._total -= self._samples.popleft()[1]
