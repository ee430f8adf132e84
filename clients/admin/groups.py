"""Consumer groups: list, describe with members, their committed offsets, commit and delete these, delete groups.

Offsets can be set from outside only while a group has no members; the coordinator checks that.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from clients.cluster import Cluster, Coordinator
from clients.errors import BrokerRefused, Refusal, error_code, refusal, require_success
from protocol.compiler import decoder
from protocol.errors import ErrorCode
from protocol.internal.consumer_protocol import ConsumerProtocolAssignment
from protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from protocol.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchResponse
from protocol.primitives import DecodeError
from protocol.topic_partition import TopicPartition

CONSUMER_PROTOCOL: Final = "consumer"
DEAD: Final = "Dead"
_NO_OFFSET: Final = -1
_NEWEST_WITH_TOPIC_NAMES: Final = 9
"""Of OffsetCommit and OffsetFetch; version 10 has topic ids."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupListing:
    """A group, as its coordinator lists it."""

    group_id: str
    protocol_type: str
    state: str
    coordinator: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMember:
    """A member with the partitions that are assigned to it; none are known of other protocols than "consumer"."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDescription:
    """A group with its members."""

    group_id: str
    state: str
    protocol_type: str
    assignor: str
    members: tuple[GroupMember, ...]


class CommittedOffset(NamedTuple):
    """What a group has committed for a partition."""

    offset: int
    metadata: str


async def list_groups(cluster: Cluster, states: Sequence[str] = ()) -> list[GroupListing]:
    """The groups of all brokers, by id."""
    request = ListGroupsRequest(states_filter=list(states))
    found = []
    for node_id, response in await cluster.call_every_broker(request, ListGroupsResponse, lambda r: [r.error_code]):
        require_success(f"broker {node_id}", response.error_code)
        found += [
            GroupListing(
                group_id=group.group_id,
                protocol_type=group.protocol_type,
                state=group.group_state,
                coordinator=node_id,
            )
            for group in response.groups
        ]
    return sorted(found, key=lambda group: group.group_id)


async def describe_group(cluster: Cluster, group_id: str) -> GroupDescription:
    """A group with its members. Raises ``BrokerRefused``, also for a group that does not exist."""
    response = await cluster.call(
        Coordinator.of_group(group_id),
        DescribeGroupsRequest(groups=[group_id]),
        DescribeGroupsResponse,
        errors=lambda r: [group.error_code for group in r.groups],
    )
    group = response.groups[0]
    require_success(f"group {group_id}", group.error_code, group.error_message)
    if group.group_state == DEAD:  # Until version 5 this is how a group is described that does not exist.
        raise BrokerRefused(f"group {group_id}", Refusal(error=ErrorCode.GROUP_ID_NOT_FOUND))
    return GroupDescription(
        group_id=group.group_id,
        state=group.group_state,
        protocol_type=group.protocol_type,
        assignor=group.protocol_data,
        members=tuple(_member(group, member) for member in group.members),
    )


def _member(group: DescribedGroup, member: DescribedGroupMember) -> GroupMember:
    is_consumer = group.protocol_type == CONSUMER_PROTOCOL
    return GroupMember(
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        client_id=member.client_id,
        client_host=member.client_host.removeprefix("/"),
        partitions=parse_assignment(member.member_assignment) if is_consumer else (),
    )


def parse_assignment(data: bytes) -> tuple[TopicPartition, ...]:
    """The partitions in a consumer's assignment; members wrote it, so it may be anything: then none."""
    if len(data) < 2:
        return ()
    version = min(int.from_bytes(data[:2], "big", signed=True), ConsumerProtocolAssignment.versions.last)
    try:
        assignment, _ = decoder(ConsumerProtocolAssignment, max(version, 0))(data, 2)
    except DecodeError:
        return ()
    partitions = [
        TopicPartition(topic.topic, partition)
        for topic in assignment.assigned_partitions
        for partition in topic.partitions
    ]
    return tuple(sorted(partitions))


async def delete_group(cluster: Cluster, group_id: str) -> Refusal | None:
    response = await cluster.call(
        Coordinator.of_group(group_id),
        DeleteGroupsRequest(groups_names=[group_id]),
        DeleteGroupsResponse,
        errors=lambda r: [group.error_code for group in r.results],
    )
    return refusal(response.results[0].error_code)


async def committed_offsets(
    cluster: Cluster, group_id: str, *, require_stable: bool = False
) -> dict[TopicPartition, CommittedOffset]:
    """Everything that a group has committed. Raises ``BrokerRefused``."""
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
    answer = response.groups[0] if response.groups else response
    for error in _offset_fetch_errors(response):
        require_success(f"group {group_id}", error)
    return {
        TopicPartition(topic.name, partition.partition_index): CommittedOffset(
            partition.committed_offset, partition.metadata or ""
        )
        for topic in answer.topics
        for partition in topic.partitions
        if partition.committed_offset != _NO_OFFSET
    }


def _offset_fetch_errors(response: OffsetFetchResponse) -> list[int]:
    answer = response.groups[0] if response.groups else response
    return [answer.error_code, *(partition.error_code for topic in answer.topics for partition in topic.partitions)]


async def commit_offsets(
    cluster: Cluster, group_id: str, offsets: Mapping[TopicPartition, int]
) -> dict[TopicPartition, Refusal | None]:
    """Commit as somebody who is no member, which is allowed while there are none."""
    topics: dict[str, OffsetCommitRequestTopic] = {}
    for (name, partition), offset in sorted(offsets.items()):
        topic = topics.setdefault(name, OffsetCommitRequestTopic(name=name))
        topic.partitions.append(OffsetCommitRequestPartition(partition_index=partition, committed_offset=offset))
    response = await cluster.call(
        Coordinator.of_group(group_id),
        OffsetCommitRequest(group_id=group_id, topics=list(topics.values())),
        OffsetCommitResponse,
        errors=lambda r: [partition.error_code for topic in r.topics for partition in topic.partitions],
        at_most=_NEWEST_WITH_TOPIC_NAMES,
    )
    return {
        TopicPartition(answered.name, partition.partition_index): refusal(partition.error_code)
        for answered in response.topics
        for partition in answered.partitions
    }


async def delete_offsets(
    cluster: Cluster, group_id: str, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, Refusal | None]:
    """Forget what a group committed for partitions of topics that none of its members subscribes to."""
    topics: dict[str, OffsetDeleteRequestTopic] = {}
    for name, partition in sorted(partitions):
        topic = topics.setdefault(name, OffsetDeleteRequestTopic(name=name))
        topic.partitions.append(OffsetDeleteRequestPartition(partition_index=partition))
    response = await cluster.call(
        Coordinator.of_group(group_id),
        OffsetDeleteRequest(group_id=group_id, topics=list(topics.values())),
        OffsetDeleteResponse,
        errors=lambda r: [r.error_code],
    )
    if response.error_code != ErrorCode.NONE:
        raise BrokerRefused(f"group {group_id}", Refusal(error=error_code(response.error_code)))
    return {
        TopicPartition(answered.name, answered_partition.partition_index): refusal(answered_partition.error_code)
        for answered in response.topics
        for answered_partition in answered.partitions
    }
