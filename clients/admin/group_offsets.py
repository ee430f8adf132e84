"""The committed offsets of consumer groups: list, change, delete.

An administrator can change offsets only while the group has no members; the coordinator checks that. With
``require_stable`` an offset that an open transaction may replace is refused with UNSTABLE_OFFSET_COMMIT (KIP-447).
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from oncelog.clients.admin.coordinators import call_coordinators
from oncelog.clients.admin.item_requests import send_items
from oncelog.clients.by_topic import by_topic, indexes_by_topic
from oncelog.clients.cluster import Cluster
from oncelog.clients.errors import Refusal, error_code, refusal, require_success
from oncelog.clients.routes import Coordinator
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from oncelog.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from oncelog.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
)
from oncelog.protocol.schema import Versions
from oncelog.protocol.topic_partition import TopicPartition

_NO_OFFSET: Final = -1
_NEWEST_WITH_TOPIC_NAMES: Final = 9
"""The last version of OffsetCommit and OffsetFetch with topic names; later ones have topic ids."""
_FIRST_WITH_SEVERAL_GROUPS: Final = 8
"""The first version of OffsetFetch for several groups."""

PartitionOutcomes = dict[TopicPartition, Refusal | None]


class CommittedOffset(NamedTuple):
    """The committed offset of a group for one partition."""

    offset: int
    metadata: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupOffsets:
    """The committed offsets of a group; a partition without one is in neither of the two."""

    found: dict[TopicPartition, CommittedOffset]
    failed: dict[TopicPartition, ErrorCode]


async def committed_offsets(
    cluster: Cluster, group_id: str, *, require_stable: bool = False
) -> dict[TopicPartition, CommittedOffset]:
    """Return all committed offsets of a group; waits until they are stable, if required. Raises ``BrokerRefused``."""
    request = OffsetFetchRequest(
        group_id=group_id,
        topics=None,
        groups=[OffsetFetchRequestGroup(group_id=group_id, topics=None)],
        require_stable=require_stable,
    )
    response = await cluster.call(
        Coordinator.of_group(group_id),
        request,
        OffsetFetchResponse,
        errors=_offset_fetch_errors,
        at_most=_NEWEST_WITH_TOPIC_NAMES,
    )
    for error in _offset_fetch_errors(response):
        require_success(f"group {group_id}", error)
    return _group_offsets(response.groups[0] if response.groups else response).found


def _offset_fetch_errors(response: OffsetFetchResponse) -> list[int]:
    group = response.groups[0] if response.groups else response
    return [group.error_code, *(partition.error_code for topic in group.topics for partition in topic.partitions)]


async def committed_offsets_of_groups(
    cluster: Cluster,
    wanted: Mapping[str, Collection[TopicPartition] | None],
    *,
    require_stable: bool = False,
) -> dict[str, GroupOffsets | Refusal]:
    """Return the committed offsets of several groups for some partitions, or for None for all.

    Errors of partitions are returned at once: the call does not wait for unstable offsets. Brokers before Kafka 3.0
    refuse with UNSUPPORTED_VERSION (KIP-709).
    """

    def build(group_ids: Collection[str]) -> OffsetFetchRequest:
        groups = [OffsetFetchRequestGroup(group_id=each, topics=_topics(wanted[each])) for each in group_ids]
        return OffsetFetchRequest(groups=groups, require_stable=require_stable)

    def split(response: OffsetFetchResponse) -> Iterable[tuple[str, GroupOffsets | Refusal]]:
        return ((group.group_id, refusal(group.error_code) or _group_offsets(group)) for group in response.groups)

    coordinators = map(Coordinator.of_group, wanted)
    versions = Versions(_FIRST_WITH_SEVERAL_GROUPS, _NEWEST_WITH_TOPIC_NAMES)
    fetched = await call_coordinators(cluster, coordinators, build, OffsetFetchResponse, split, versions=versions)
    return fetched.outcomes


def _topics(partitions: Collection[TopicPartition] | None) -> list[OffsetFetchRequestTopics] | None:
    if partitions is None:
        return None
    return [
        OffsetFetchRequestTopics(name=name, partition_indexes=indexes)
        for name, indexes in indexes_by_topic(partitions).items()
    ]


def _group_offsets(group: OffsetFetchResponse | OffsetFetchResponseGroup) -> GroupOffsets:
    found: dict[TopicPartition, CommittedOffset] = {}
    failed: dict[TopicPartition, ErrorCode] = {}
    for topic in group.topics:
        for partition in topic.partitions:
            topic_partition = TopicPartition(topic.name, partition.partition_index)
            if partition.error_code:
                failed[topic_partition] = error_code(partition.error_code)
            elif partition.committed_offset != _NO_OFFSET:
                found[topic_partition] = CommittedOffset(partition.committed_offset, partition.metadata or "")
    return GroupOffsets(found=found, failed=failed)


async def commit_offsets(cluster: Cluster, group_id: str, offsets: Mapping[TopicPartition, int]) -> PartitionOutcomes:
    """Set the committed offsets of a group, which its coordinator allows while the group has no members."""

    def build(pending: Mapping[TopicPartition, int], _: int) -> OffsetCommitRequest:
        committed = by_topic(
            (tp, OffsetCommitRequestPartition(partition_index=tp.partition, committed_offset=offset))
            for tp, offset in sorted(pending.items())
        )
        topics = [OffsetCommitRequestTopic(name=name, partitions=partitions) for name, partitions in committed.items()]
        return OffsetCommitRequest(group_id=group_id, topics=topics)

    committed = await send_items(
        cluster,
        Coordinator.of_group(group_id),
        offsets,
        build,
        OffsetCommitResponse,
        lambda response: _outcomes(response).items(),
        versions=Versions(0, _NEWEST_WITH_TOPIC_NAMES),
    )
    return committed.outcomes


async def delete_offsets(cluster: Cluster, group_id: str, partitions: Iterable[TopicPartition]) -> PartitionOutcomes:
    """Delete committed offsets of partitions of topics that no member subscribes to (KIP-496).

    Raises ``BrokerRefused``.
    """
    forgotten = by_topic((tp, OffsetDeleteRequestPartition(partition_index=tp.partition)) for tp in sorted(partitions))
    topics = [OffsetDeleteRequestTopic(name=name, partitions=each) for name, each in forgotten.items()]
    response = await cluster.call(
        Coordinator.of_group(group_id),
        OffsetDeleteRequest(group_id=group_id, topics=topics),
        OffsetDeleteResponse,
        errors=lambda r: [r.error_code],
    )
    require_success(f"group {group_id}", response.error_code)
    return _outcomes(response)


def _outcomes(response: OffsetCommitResponse | OffsetDeleteResponse) -> PartitionOutcomes:
    return {
        TopicPartition(topic.name, partition.partition_index): refusal(partition.error_code)
        for topic in response.topics
        for partition in topic.partitions
    }
