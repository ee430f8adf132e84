"""Ranges of offsets, one for each task, and how they are cut. Pure."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from oncelog.protocol.topic_partition import TopicPartition

NO_TOPIC_ID: Final = b"\0" * 16
"""The id of a topic of which only the name is known: brokers before Kafka 2.8 have no topic ids."""


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """The records of one partition from offset ``start`` on, before ``end``. Picklable into tasks."""

    topic: str
    partition: int
    start: int
    end: int
    topic_id: bytes = NO_TOPIC_ID
    """The topic's id; a later topic of the same name has another one."""

    @property
    def size(self) -> int:
        """The number of offsets; compaction and markers leave some of them without a record."""
        return self.end - self.start

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} [{self.start}, {self.end})"


def cut(
    ranges: Iterable[OffsetRange], *, min_partitions: int | None, max_records_per_partition: int | None
) -> list[OffsetRange]:
    """Cut ranges into tasks: none empty, none above ``max_records_per_partition`` offsets, ``min_partitions`` or more.

    To reach ``min_partitions``, the range whose pieces are the largest is cut once more, again and again, while it has
    more than one offset for each piece.
    """
    whole = [each for each in ranges if each.size > 0]
    most = max_records_per_partition
    pieces = [1 if most is None else -(-each.size // most) for each in whole]
    for _ in range((min_partitions or 0) - sum(pieces)):
        largest = max(range(len(whole)), key=lambda index: whole[index].size / pieces[index], default=None)
        if largest is None or whole[largest].size <= pieces[largest]:
            break
        pieces[largest] += 1
    return [piece for each, count in zip(whole, pieces, strict=True) for piece in _cut_evenly(each, count)]


def _cut_evenly(whole: OffsetRange, count: int) -> Sequence[OffsetRange]:
    edges = [whole.start + whole.size * index // count for index in range(count + 1)]
    return [OffsetRange(whole.topic, whole.partition, start, end, whole.topic_id) for start, end in pairwise(edges)]


def listed(partitions: Collection[TopicPartition]) -> str:
    """Return ``a-0, a-1 and 7 more``, for messages."""
    some = [f"{topic}-{partition}" for topic, partition in sorted(partitions)]
    return ", ".join(some[:10]) + (f" and {len(some) - 10} more" if len(some) > 10 else "")
