"""``EarlyBatches``: the batches in sequence that came to this broker before it led their partition.

When it leads, the log awaits them (``AwaitedBatches``).
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import Final, NamedTuple

from oncelog.broker.storage.awaited_batches import IN_FLIGHT_MS, Place, first_of
from oncelog.protocol.records.record_batch import BatchHeader
from oncelog.protocol.schema import ZERO_UUID
from oncelog.protocol.topic_name import MAX_LENGTH
from oncelog.protocol.topic_partition import TopicPartition

_MOST: Final = 50_000


class _Refusal(NamedTuple):
    place: Place
    at_ms: int


_Partition = tuple[str | bytes, int]
"""A topic's name, or its id if the producer knows that, and the index of a partition."""


class EarlyBatches:
    """The first refused batch of each producer, by partition: at most 50,000; the partitions refused first go first."""

    __slots__ = ("_now_ms", "_refusals", "_size")

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._refusals: OrderedDict[_Partition, dict[int, _Refusal]] = OrderedDict()
        """By producer id."""
        self._size = 0

    def refuse(self, topic_partition: tuple[str, int], topic_id: bytes, header: BatchHeader) -> None:
        """Note a batch with a sequence that was not appended. ``topic_id``: zero if the producer knows the name only.

        An older epoch of a producer does not replace a newer one.
        """
        name, index = topic_partition
        if topic_id == ZERO_UUID and len(name) > MAX_LENGTH:
            return  # There is no such topic.
        refusals = self._refusals.setdefault((name if topic_id == ZERO_UUID else topic_id, index), {})
        place, before = Place(header.producer_epoch, header.base_sequence), refusals.get(header.producer_id)
        if before is None:
            self._size += 1
        else:
            place = first_of(before.place, place)
        refusals[header.producer_id] = _Refusal(place, self._now_ms())
        while self._size > _MOST:
            _, dropped = self._refusals.popitem(last=False)
            self._size -= len(dropped)

    def take(self, topic_partition: TopicPartition, topic_id: bytes) -> list[tuple[int, Place]]:
        """Remove and return what was refused of a partition and others may be in flight behind, by producer id."""
        if not self._refusals:
            return []
        now_ms, (name, index) = self._now_ms(), topic_partition
        taken: list[tuple[int, _Refusal]] = []
        for key in ((name, index), (topic_id, index)):
            refusals = self._refusals.pop(key, {})
            self._size -= len(refusals)
            taken += refusals.items()
        return [(producer_id, each.place) for producer_id, each in taken if now_ms - each.at_ms < IN_FLIGHT_MS]
