"""Log directories of brokers, and how much of which partition is in them (DescribeLogDirs)."""

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
    """A replica in a log directory: bytes of its segments, and how many offsets it is behind."""

    size_bytes: int
    offset_lag: int
    is_future: bool
    """It is being moved here, and replaces the one in another directory when it has caught up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDirDescription:
    """One log directory; the sizes of its volume (bytes) are told from version 3.3 on."""

    path: str
    refused: Refusal | None
    """Why the broker cannot use it: KAFKA_STORAGE_ERROR."""
    total_bytes: int | None
    usable_bytes: int | None
    replicas: dict[TopicPartition, ReplicaSize]


async def describe_log_dirs(
    cluster: Cluster,
    broker_ids: Collection[int] | None = None,
    partitions: Iterable[TopicPartition] | None = None,
) -> dict[int, tuple[LogDirDescription, ...] | Refusal]:
    """The log directories of some brokers, with some partitions; None for all of them."""
    if broker_ids is None or not set(broker_ids) <= cluster.brokers.keys():
        await cluster.refresh(())
    topics = None
    if partitions is not None:
        topics = [
            DescribableLogDirTopic(topic=name, partitions=indexes)
            for name, indexes in indexes_by_topic(partitions).items()
        ]
    asked = sorted(cluster.brokers if broker_ids is None else broker_ids)
    request = DescribeLogDirsRequest(topics=topics)
    answers = await send_to_each(
        cluster, dict.fromkeys(asked, request), DescribeLogDirsResponse, cluster.attempts().remaining_seconds
    )
    return {broker_id: _directories(answers[broker_id]) for broker_id in asked}


def _directories(answer: DescribeLogDirsResponse | Refusal) -> tuple[LogDirDescription, ...] | Refusal:
    if isinstance(answer, Refusal):
        return answer
    return refusal(answer.error_code) or tuple(_directory(result) for result in answer.results)


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
