"""The requests of a member of a consumer group, and what it puts into them for the other members."""

from collections.abc import Iterable, Mapping
from struct import Struct
from typing import Final

from oncelog.protocol.compiler import decode, encode
from oncelog.protocol.internal.consumer_protocol import (
    AssignedTopicPartition,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from oncelog.protocol.messages.heartbeat import HeartbeatRequest
from oncelog.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from oncelog.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from oncelog.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from oncelog.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from oncelog.protocol.topic_partition import TopicPartition

JOIN_GROUP_VERSION: Final = 7
SYNC_GROUP_VERSION: Final = 4
HEARTBEAT_VERSION: Final = 4
LEAVE_GROUP_VERSION: Final = 4
OFFSET_COMMIT_VERSION: Final = 8
_PROTOCOL_VERSION: Final = 0
_VERSION: Final = Struct(">h")


def join_group(
    group: str, member_id: str, instance_id: str | None, topic: str, *, session_ms: int, rebalance_ms: int
) -> JoinGroupRequest:
    subscription = encode(ConsumerProtocolSubscription(topics=[topic]), _PROTOCOL_VERSION)
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=session_ms,
        rebalance_timeout_ms=rebalance_ms,
        member_id=member_id,
        group_instance_id=instance_id,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=_VERSION.pack(_PROTOCOL_VERSION) + subscription)],
    )


def sync_group(
    group: str,
    generation: int,
    member_id: str,
    instance_id: str | None,
    assignments: Mapping[str, Iterable[TopicPartition]],
) -> SyncGroupRequest:
    """``assignments``: of all members, from the leader; empty from the others."""
    return SyncGroupRequest(
        group_id=group,
        generation_id=generation,
        member_id=member_id,
        group_instance_id=instance_id,
        assignments=[
            SyncGroupRequestAssignment(member_id=owner, assignment=_encoded(partitions))
            for owner, partitions in assignments.items()
        ],
    )


def _encoded(partitions: Iterable[TopicPartition]) -> bytes:
    topics: dict[str, list[int]] = {}
    for topic, index in partitions:
        topics.setdefault(topic, []).append(index)
    assigned = [AssignedTopicPartition(topic=topic, partitions=indexes) for topic, indexes in topics.items()]
    message = ConsumerProtocolAssignment(assigned_partitions=assigned)
    return _VERSION.pack(_PROTOCOL_VERSION) + encode(message, _PROTOCOL_VERSION)


def assigned_partitions(assignment: bytes) -> list[TopicPartition]:
    """Return the partitions of an assignment; none if there is no assignment."""
    if not assignment:
        return []
    (version,) = _VERSION.unpack_from(assignment)
    decoded = decode(ConsumerProtocolAssignment, version, assignment[_VERSION.size :])
    return [TopicPartition(topic.topic, index) for topic in decoded.assigned_partitions for index in topic.partitions]


def heartbeat(group: str, generation: int, member_id: str, instance_id: str | None) -> HeartbeatRequest:
    return HeartbeatRequest(
        group_id=group, generation_id=generation, member_id=member_id, group_instance_id=instance_id
    )


def leave_group(group: str, member_id: str, instance_id: str | None) -> LeaveGroupRequest:
    return LeaveGroupRequest(
        group_id=group, members=[MemberIdentity(member_id=member_id, group_instance_id=instance_id)]
    )


def offset_commit(
    group: str,
    generation: int,
    member_id: str,
    instance_id: str | None,
    partition: TopicPartition,
    offset: int,
    metadata: str,
) -> OffsetCommitRequest:
    committed = OffsetCommitRequestPartition(
        partition_index=partition.partition, committed_offset=offset, committed_metadata=metadata
    )
    return OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        group_instance_id=instance_id,
        topics=[OffsetCommitRequestTopic(name=partition.topic, partitions=[committed])],
    )
