"""``OldConsumer``: what a connection remembers of a consumer whose fetches are older than version 4. Pure.

Such a consumer goes on behind the last message that it was sent. Where a range of a log has nothing that it may see,
only markers of transactions perhaps, or aborted records, it asks for that range for ever. So the broker reads on, and
remembers here how far it was, or it would have to read the same range with every fetch.

It has no means either to ask for its partitions in another order, before version 3, so that each has its turn: the
broker begins with another one each time.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple, TypeVar

T = TypeVar("T")

_MOST_RANGES: Final = 1_000
"""Partitions of one connection; the range that was noted first is forgotten, which costs only time."""


class SkippedRange(NamedTuple):
    """Offsets of a log that have nothing for an old consumer."""

    leader_epoch: int
    """Of the leader that has found this: after an unclean election the offsets may be those of other records."""
    fetch_offset: int
    next_offset: int


class OldConsumer:
    """The ranges that were skipped, and whose turn it is."""

    __slots__ = ("_ranges", "_turn")

    def __init__(self) -> None:
        self._ranges: dict[tuple[str, int], SkippedRange] = {}
        self._turn = 0

    def resumed_at(self, topic_partition: tuple[str, int], leader_epoch: int, fetch_offset: int) -> int:
        """Return the offset from which to read for a consumer that fetches from ``fetch_offset``."""
        skipped = self._ranges.get(topic_partition)
        if skipped is not None and skipped[:2] == (leader_epoch, fetch_offset):
            return skipped.next_offset
        return fetch_offset

    def skip(self, topic_partition: tuple[str, int], skipped: SkippedRange) -> None:
        """Note that nothing below ``next_offset`` is for this consumer."""
        self._ranges.pop(topic_partition, None)
        if len(self._ranges) >= _MOST_RANGES:
            del self._ranges[next(iter(self._ranges))]
        self._ranges[topic_partition] = skipped

    def in_turn(self, requested: Sequence[T]) -> list[T]:
        """Return what was requested, beginning with another one each time."""
        if not requested:
            return []
        start = self._turn % len(requested)
        self._turn += 1
        return [*requested[start:], *requested[:start]]
