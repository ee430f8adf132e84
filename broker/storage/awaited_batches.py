"""``AwaitedBatches``: what was refused of a partition before this broker led it, and must come again before the rest.

A producer may learn of a new leader before the leader does. Its first batches are refused then, and it sends them
again; those that were in flight behind them may find the partition led. Nothing in the log shows that they are not the
first ones of their producer. So they are refused, too, until the earlier one has come again; also if the leadership
was lost meanwhile, and is back.

This ends after 30 s: a client closes a connection when a request over it has had no response for
``request.timeout.ms``, so nothing is in flight behind a refused batch any more, and it may have been given up.
"""

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.records.record_batch import BatchHeader

IN_FLIGHT_MS: Final = 30_000


class Place(NamedTuple):
    """Where a batch is among those of its producer."""

    producer_epoch: int
    base_sequence: int


def first_of(one: Place, other: Place) -> Place:
    """Return the earlier batch of the newest epoch of a producer."""
    return max(one, other, key=lambda place: (place.producer_epoch, -place.base_sequence))


class _Awaited(NamedTuple):
    place: Place
    until_ms: int


class AwaitedBatches:
    """The first awaited batch of each producer of one log. Only producers that the log does not know count."""

    __slots__ = ("_any_until_ms", "_wall_clock", "by_producer")

    def __init__(self, wall_clock: Callable[[], int]) -> None:
        self._wall_clock = wall_clock
        self.by_producer: dict[int, _Awaited] = {}
        self._any_until_ms = 0

    def expect_any(self) -> None:
        """Await the first batch of every producer: of which ones a batch was refused is not known any more."""
        self._any_until_ms = self._wall_clock() + IN_FLIGHT_MS

    def expect(self, batches: Iterable[tuple[int, Place]]) -> None:
        """Await refused batches, by producer id, beside those that are awaited still."""
        now_ms = self._wall_clock()
        awaited = {key: each for key, each in self.by_producer.items() if self._is_due(each.until_ms)}
        for producer_id, place in batches:
            before = awaited.get(producer_id)
            first = place if before is None else first_of(before.place, place)
            awaited[producer_id] = _Awaited(first, now_ms + IN_FLIGHT_MS)
        self.by_producer = awaited

    def error_behind(self, header: BatchHeader) -> ErrorCode | None:
        """Return why a batch must not be appended before one of its producer that is awaited; None if there is none."""
        awaited = self.by_producer.get(header.producer_id)
        if awaited is not None:
            (epoch, sequence), until_ms = awaited
        elif self._any_until_ms:
            epoch, sequence, until_ms = header.producer_epoch, 0, self._any_until_ms
        else:
            return None
        is_behind = epoch == header.producer_epoch and sequence < header.base_sequence
        return ErrorCode.KAFKA_STORAGE_ERROR if is_behind and self._is_due(until_ms) else None

    def _is_due(self, until_ms: int) -> bool:
        """Return whether something is awaited still; a longer wait than 30 s shows that the clock was set back."""
        return 0 < until_ms - self._wall_clock() <= IN_FLIGHT_MS
