"""OffsetCommit (API key 8): versions 2-10, flexible from 8.

A member of a group commits offsets.

2-4: a retention time, which brokers since ignore. 3: throttle time. 4: throttling moves to the client. 6: leader
epochs. 7: static members (KIP-345). 9: also for the new consumer groups (KIP-848): STALE_MEMBER_EPOCH and
GROUP_ID_NOT_FOUND may be returned. 10: topic ids instead of names.
"""

from oncelog.protocol.schema import ZERO_UUID, Message, array, int16, int32, int64, string, uuid


class OffsetCommitRequestPartition(Message):
    partition_index: int = int32("0+", default=0)
    committed_offset: int = int64("0+", default=0)
    committed_leader_epoch: int = int32("6+", default=-1)
    committed_metadata: str | None = string("0+", default="", nullable="0+")


class OffsetCommitRequestTopic(Message):
    name: str = string("0-9", default="")
    topic_id: bytes = uuid("10+", default=ZERO_UUID)
    partitions: list[OffsetCommitRequestPartition] = array(OffsetCommitRequestPartition, "0+", default_factory=list)


class OffsetCommitRequest(Message, api_key=8, versions="2-10", flexible="8+"):
    group_id: str = string("0+", default="")
    generation_id_or_member_epoch: int = int32("1+", default=-1)
    member_id: str = string("1+", default="")
    group_instance_id: str | None = string("7+", default=None, nullable="7+")
    retention_time_ms: int = int64("2-4", default=-1)
    topics: list[OffsetCommitRequestTopic] = array(OffsetCommitRequestTopic, "0+", default_factory=list)


class OffsetCommitResponsePartition(Message):
    partition_index: int = int32("0+", default=0)
    error_code: int = int16("0+", default=0)


class OffsetCommitResponseTopic(Message):
    name: str = string("0-9", default="")
    topic_id: bytes = uuid("10+", default=ZERO_UUID)
    partitions: list[OffsetCommitResponsePartition] = array(OffsetCommitResponsePartition, "0+", default_factory=list)


class OffsetCommitResponse(Message, api_key=8, versions="2-10", flexible="8+"):
    throttle_time_ms: int = int32("3+", default=0)
    topics: list[OffsetCommitResponseTopic] = array(OffsetCommitResponseTopic, "0+", default_factory=list)
