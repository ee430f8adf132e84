"""Log directories of brokers, with the sizes of the partitions in them (DescribeLogDirs)."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final

from oncelog.clients.by_topic import indexes_by_topic
from oncelog.clients.cluster import Cluster
from oncelog.clients.errors import Refusal, refusal
from oncelog.clients.fan_out import send_to_each
from oncelog.protocol.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
)
from oncelog.protocol.topic_partition import TopicPartition

_UNKNOWN: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaSize:
    """A replica in a log directory: the size of its segments in bytes, and its lag in offsets."""

    size_bytes: int
    offset_lag: int
    is_future: bool
    """Whether the replica is being moved here, and replaces the one in another directory when it has caught up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDirDescription:
    """One log directory; the sizes of its volume in bytes are known from Kafka 3.3 on."""

    path: str
    refused: Refusal | None
    """The error if the broker cannot use the directory: KAFKA_STORAGE_ERROR."""
    total_bytes: int | None
    usable_bytes: int | None
    replicas: dict[TopicPartition, ReplicaSize]


async def describe_log_dirs(
    cluster: Cluster,
    broker_ids: Collection[int] | None = None,
    partitions: Iterable[TopicPartition] | None = None,
) -> dict[int, tuple[LogDirDescription, ...] | Refusal]:
    """Return the log directories of some brokers, with some partitions, or for None all of them."""
    if broker_ids is None or not set(broker_ids) <= cluster.brokers.keys():
        await cluster.refresh(())
    topics = None
    if partitions is not None:
        topics = [
            DescribableLogDirTopic(topic=name, partitions=indexes)
            for name, indexes in indexes_by_topic(partitions).items()
        ]
    ids = sorted(cluster.brokers if broker_ids is None else broker_ids)
    request = DescribeLogDirsRequest(topics=topics)
    responses = await send_to_each(
        cluster, dict.fromkeys(ids, request), DescribeLogDirsResponse, cluster.attempts().remaining_seconds
    )
    return {broker_id: _directories(responses[broker_id]) for broker_id in ids}


def _directories(response: DescribeLogDirsResponse | Refusal) -> tuple[LogDirDescription, ...] | Refusal:
    if isinstance(response, Refusal):
        return response
    return refusal(response.error_code) or tuple(_directory(result) for result in response.results)


def _directory(result: DescribeLogDirsResult) -> LogDirDescription:
    return LogDirDescription(
        path=result.log_dir,
        refused=refusal(result.error_code),
        total_bytes=None if result.total_bytes == _UNKNOWN else result.total_bytes,
        usable_bytes=None if result.usable_bytes == _UNKNOWN else result.usable_bytes,
        replicas={
            TopicPartition(topic.name, partition.partition_index): ReplicaSize(
                size_bytes=partition.partition_size,
                offset_lag=partition.offset_lag,
                is_future=partition.is_future_key,
            )
            for topic in result.topics
            for partition in topic.partitions
        },
    )
