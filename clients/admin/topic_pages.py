"""Topics page by page (DescribeTopicPartitions, KIP-966), for clusters with too much metadata for one response.

A response holds at most ``page_size`` partitions and the cursor of the next page. The pages are joined here, so
results are whole topics. They include the eligible leader replicas, which may lead although they are not in sync.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple
from uuid import UUID

from oncelog.clients.admin.topics import PartitionDescription, TopicDescription, describe_topics
from oncelog.clients.cluster import Cluster
from oncelog.clients.errors import BadResponse, Refusal, VersionNotSupported, refusal
from oncelog.clients.routes import AnyBroker
from oncelog.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
    PartitionRecovery,
    TopicRequest,
)

PAGE_SIZE: Final = 2000
"""Maximum number of partitions of a page, as in Java's admin client."""


class LogEnd(NamedTuple):
    """Where a replica's log ends."""

    leader_epoch: int
    """Of its last batch; -1 if it has none."""
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryDescription:
    """What a partition waits for that has no leader, because no replica is there that certainly has everything."""

    strategy: str
    """``unclean.recovery.strategy``, as it is in force."""
    waits_for: tuple[int, ...]
    """The brokers that must be back, or must say where their logs end."""
    elects: int | None
    """The replica that an unclean election would elect now; None if none is there."""
    decides_at_ms: int | None
    """When a replica is elected at the latest, in milliseconds since the Unix epoch; None: not by the clock."""
    log_ends: Mapping[int, LogEnd]
    """By broker, as far as they are known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PagedPartitionDescription(PartitionDescription):
    """A partition with its eligible leader replicas, which have all committed records, in sync or not."""

    eligible_leaders: tuple[int, ...]
    last_known_eligible_leaders: tuple[int, ...]
    recovery: RecoveryDescription | None = None
    """None, too, from a broker that does not say: an earlier release, or Apache Kafka."""


async def describe_topic_pages(
    cluster: Cluster, names: Sequence[str] = (), *, page_size: int = PAGE_SIZE
) -> dict[str, TopicDescription | Refusal]:
    """Return some topics, or all if none is named, each described or refused."""
    await cluster.refresh(())
    described: dict[str, TopicDescription | Refusal] = {}
    cursor: Cursor | None = None
    while True:
        page = await _page(cluster, names, page_size, cursor)
        for topic in page.topics:
            name = topic.name or ""
            described[name] = refusal(topic.error_code) or _joined(described.get(name), _description(topic, cluster))
        if page.next_cursor is None:
            return described
        if cursor is not None and _place(page.next_cursor) <= _place(cursor):
            raise BadResponse(f"the page after {_place(cursor)} ends at {_place(page.next_cursor)}")
        cursor = page.next_cursor


async def describe_eligible(cluster: Cluster, name: str) -> TopicDescription | Refusal:
    """Return a topic, with its eligible leader replicas where a broker can name them.

    From a broker without DescribeTopicPartitions, or one that has not learned of the topic yet, its partitions are
    plain ``PartitionDescription``.
    """
    described = (await describe_topics(cluster, [name]))[name]
    if isinstance(described, Refusal):
        return described
    try:
        detailed = (await describe_topic_pages(cluster, [name])).get(name)
    except VersionNotSupported:
        return described
    return detailed if isinstance(detailed, TopicDescription) else described


async def _page(
    cluster: Cluster, names: Sequence[str], page_size: int, cursor: Cursor | None
) -> DescribeTopicPartitionsResponse:
    remaining = [name for name in sorted(names) if cursor is None or name >= cursor.topic_name]
    request = DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name=name) for name in remaining], response_partition_limit=page_size, cursor=cursor
    )
    return await cluster.call(AnyBroker(), request, DescribeTopicPartitionsResponse)


def _place(cursor: Cursor) -> tuple[str, int]:
    return cursor.topic_name, cursor.partition_index


def _joined(before: TopicDescription | Refusal | None, page: TopicDescription) -> TopicDescription:
    """Return a topic with the partitions of its former pages and of this one."""
    if not isinstance(before, TopicDescription):
        return page
    return TopicDescription(
        name=page.name,
        topic_id=page.topic_id,
        is_internal=page.is_internal,
        partitions=before.partitions + page.partitions,
    )


def _description(topic: DescribeTopicPartitionsResponseTopic, cluster: Cluster) -> TopicDescription:
    return TopicDescription(
        name=topic.name or "",
        topic_id=UUID(bytes=topic.topic_id),
        is_internal=topic.is_internal,
        partitions=tuple(_partition(partition, cluster) for partition in topic.partitions),
    )


def _partition(partition: DescribeTopicPartitionsResponsePartition, cluster: Cluster) -> PartitionDescription:
    return PagedPartitionDescription(
        partition=partition.partition_index,
        leader=partition.leader_id if partition.leader_id in cluster.brokers else None,
        leader_epoch=partition.leader_epoch,
        replicas=tuple(partition.replica_nodes),
        isr=tuple(partition.isr_nodes),
        offline=tuple(partition.offline_replicas),
        eligible_leaders=tuple(partition.eligible_leader_replicas or ()),
        last_known_eligible_leaders=tuple(partition.last_known_elr or ()),
        recovery=None if partition.recovery is None else _recovery(partition.recovery),
    )


def _recovery(recovery: PartitionRecovery) -> RecoveryDescription:
    return RecoveryDescription(
        strategy=recovery.strategy,
        waits_for=tuple(sorted(recovery.waits_for)),
        elects=None if recovery.elects < 0 else recovery.elects,
        decides_at_ms=None if recovery.decides_at_ms < 0 else recovery.decides_at_ms,
        log_ends={end.broker_id: LogEnd(end.leader_epoch, end.offset) for end in recovery.log_ends},
    )
