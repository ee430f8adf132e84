"""Where partitions begin and end, and which offset belongs to a timestamp (ListOffsets)."""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from clients.cluster import Cluster, LeaderAnswers
from protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from protocol.topic_partition import TopicPartition

LATEST: Final = -1
EARLIEST: Final = -2
_CONSUMER: Final = -1
_READ_UNCOMMITTED: Final = 0
_READ_COMMITTED: Final = 1
_NOT_FOUND: Final = -1


class FoundOffset(NamedTuple):
    """An offset, and the timestamp of its record if a timestamp was asked for."""

    offset: int | None
    timestamp: int | None


async def list_offsets(
    cluster: Cluster, timestamps: Mapping[TopicPartition, int], *, read_committed: bool = False
) -> LeaderAnswers[FoundOffset]:
    """The first offset whose record is not older than a timestamp (ms); ``LATEST`` and ``EARLIEST`` ask for the ends.

    ``read_committed`` puts the end before the first open transaction.
    """

    def build(wanted: Mapping[TopicPartition, int]) -> ListOffsetsRequest:
        topics: dict[str, ListOffsetsTopic] = {}
        for (name, partition), timestamp in wanted.items():
            topic = topics.setdefault(name, ListOffsetsTopic(name=name))
            topic.partitions.append(ListOffsetsPartition(partition_index=partition, timestamp=timestamp))
        level = _READ_COMMITTED if read_committed else _READ_UNCOMMITTED
        return ListOffsetsRequest(replica_id=_CONSUMER, isolation_level=level, topics=list(topics.values()))

    return await cluster.call_leaders(timestamps, build, ListOffsetsResponse, _split)


def _split(response: ListOffsetsResponse) -> Iterable[tuple[TopicPartition, int, FoundOffset]]:
    for topic in response.topics:
        for partition in topic.partitions:
            found = FoundOffset(
                None if partition.offset == _NOT_FOUND else partition.offset,
                None if partition.timestamp == _NOT_FOUND else partition.timestamp,
            )
            yield TopicPartition(topic.name, partition.partition_index), partition.error_code, found
