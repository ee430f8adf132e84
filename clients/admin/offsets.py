"""Offsets of partitions: the first, the last, and that of a timestamp (ListOffsets)."""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from oncelog.clients.by_topic import by_topic
from oncelog.clients.cluster import Cluster
from oncelog.clients.fan_out import call_leaders
from oncelog.clients.partition_results import PartitionResults
from oncelog.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from oncelog.protocol.topic_partition import TopicPartition

LATEST: Final = -1
"""The end of the partition: the high watermark, or with ``read_committed`` the last stable offset."""
EARLIEST: Final = -2
"""The start of the partition."""
MAX_TIMESTAMP: Final = -3
"""The record with the largest timestamp (KIP-734; brokers from 3.0)."""
EARLIEST_LOCAL: Final = -4
"""The first offset on the disk of the leader (KIP-405; brokers from 3.6)."""
LATEST_TIERED: Final = -5
"""The last offset in tiered storage (KIP-1005; brokers from 3.9)."""
_CONSUMER: Final = -1
_READ_UNCOMMITTED: Final = 0
_READ_COMMITTED: Final = 1
_NOT_FOUND: Final = -1


class FoundOffset(NamedTuple):
    """An offset with its leader epoch, and the timestamp (ms) of its record if the request had a timestamp."""

    offset: int | None
    timestamp: int | None
    leader_epoch: int = _NOT_FOUND


async def list_offsets(
    cluster: Cluster, timestamps: Mapping[TopicPartition, int], *, read_committed: bool = False
) -> PartitionResults[FoundOffset]:
    """Return the first offset whose record is not older than a timestamp (ms), or that of a constant above.

    With ``read_committed`` the end is before the first open transaction. An offset that does not exist is None.
    """

    def build(wanted: Mapping[TopicPartition, int]) -> ListOffsetsRequest:
        partitions_by_topic = by_topic(
            (tp, ListOffsetsPartition(partition_index=tp.partition, timestamp=timestamp))
            for tp, timestamp in wanted.items()
        )
        topics = [
            ListOffsetsTopic(name=name, partitions=partitions) for name, partitions in partitions_by_topic.items()
        ]
        level = _READ_COMMITTED if read_committed else _READ_UNCOMMITTED
        return ListOffsetsRequest(replica_id=_CONSUMER, isolation_level=level, topics=topics)

    return await call_leaders(cluster, timestamps, build, ListOffsetsResponse, _split)


def _split(response: ListOffsetsResponse) -> Iterable[tuple[TopicPartition, int, FoundOffset]]:
    for topic in response.topics:
        for partition in topic.partitions:
            found = FoundOffset(
                None if partition.offset == _NOT_FOUND else partition.offset,
                None if partition.timestamp == _NOT_FOUND else partition.timestamp,
                partition.leader_epoch,
            )
            yield TopicPartition(topic.name, partition.partition_index), partition.error_code, found
