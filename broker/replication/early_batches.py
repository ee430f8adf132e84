"""``EarlyBatches``: the batches in sequence that came to this broker before the partition that it is to lead.

A producer may learn of a new topic, or of a new leader, before the leader does. Its first batches are refused, and it
sends them again; those that were in flight behind them may find the partition there. Nothing in its log shows that they
are not the first ones. So what was refused is noted here, and given to the log when there is one.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from oncelog.broker.storage.refused_batches import RETRY_MS
from oncelog.protocol.records.record_batch import BatchHeader
from oncelog.protocol.schema import ZERO_UUID
from oncelog.protocol.topic_partition import TopicPartition

_MOST: Final = 10_000


class _Refusal(NamedTuple):
    header: BatchHeader
    at_ms: int


_Place = tuple[str | bytes, int]
"""A topic's name, or its id if the producer knows that, and the index of a partition."""


class EarlyBatches:
    """The first refused batch of each producer, by partition: at most 10,000; the partitions refused first go first."""

    __slots__ = ("_now_ms", "_refusals", "_size")

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._refusals: OrderedDict[_Place, dict[int, _Refusal]] = OrderedDict()
        """By producer id."""
        self._size = 0

    def refuse(self, topic_partition: tuple[str, int], topic_id: bytes, header: BatchHeader) -> None:
        """Note a batch with a sequence that was not appended. ``topic_id``: zero if the producer knows the name only.

        An older epoch of a producer does not replace a newer one.
        """
        name, index = topic_partition
        place = (name if topic_id == ZERO_UUID else topic_id, index)
        refusals = self._refusals.setdefault(place, {})
        before = refusals.get(header.producer_id)
        if before is None:
            self._size += 1
        elif _order(before.header) > _order(header):
            header = before.header
        refusals[header.producer_id] = _Refusal(header, self._now_ms())
        while self._size > _MOST:
            _, dropped = self._refusals.popitem(last=False)
            self._size -= len(dropped)

    def take(self, topic_partition: TopicPartition, topic_id: bytes) -> Iterator[BatchHeader]:
        """Remove and return what was refused of a partition and may still be sent again."""
        if not self._refusals:
            return
        now_ms, (name, index) = self._now_ms(), topic_partition
        for place in ((name, index), (topic_id, index)):
            refusals = self._refusals.pop(place, {})
            self._size -= len(refusals)
            yield from [each.header for each in refusals.values() if now_ms - each.at_ms < RETRY_MS]


def _order(header: BatchHeader) -> tuple[int, int]:
    """Return what is greater the newer the epoch, and then the earlier the sequence."""
    return header.producer_epoch, -header.base_sequence
