"""The records of ``__consumer_offsets``: group metadata and committed offsets of the classic protocol."""

from oncelog.protocol.schema import ZERO_UUID, Message, array, binary, int32, int64, string, uuid


class GroupMetadataKey(Message, versions="0", flexible="none"):
    group: str = string("0", default="")


class MemberMetadata(Message):
    member_id: str = string("0+", default="")
    group_instance_id: str | None = string("3+", default=None, nullable="3+")
    client_id: str = string("0+", default="")
    client_host: str = string("0+", default="")
    rebalance_timeout: int = int32("1+", default=-1)
    session_timeout: int = int32("0+", default=0)
    subscription: bytes = binary("0+", default=b"")
    assignment: bytes = binary("0+", default=b"")


class GroupMetadataValue(Message, versions="0-4", flexible="4+"):
    protocol_type: str = string("0+", default="")
    generation: int = int32("0+", default=0)
    protocol: str | None = string("0+", default="", nullable="0+")
    leader: str | None = string("0+", default="", nullable="0+")
    current_state_timestamp: int = int64("2+", default=-1)
    members: list[MemberMetadata] = array(MemberMetadata, "0+", default_factory=list)


class OffsetCommitKey(Message, versions="0", flexible="none"):
    group: str = string("0", default="")
    topic: str = string("0", default="")
    partition: int = int32("0", default=0)


class OffsetCommitValue(Message, versions="0-4", flexible="4+"):
    offset: int = int64("0+", default=0)
    leader_epoch: int = int32("3+", default=-1)
    metadata: str = string("0+", default="")
    commit_timestamp: int = int64("0+", default=0)
    expire_timestamp: int = int64("1", default=-1)
    topic_id: bytes = uuid("4+", default=ZERO_UUID, tag=0)
