"""OffsetFetch (API key 9): versions 1-10, flexible from 6.

Committed offsets of groups.

2: null asks for all topics; an error code for the group. 3: throttle time. 4: throttling moves to the client.
5: leader epochs. 7: ``require_stable``: offsets of an open transaction are UNSTABLE_OFFSET_COMMIT (KIP-447).
8: several groups (KIP-709). 9: member id and epoch of the new consumer groups (KIP-848). 10: topic ids, not names.
"""

from oncelog.protocol.schema import ZERO_UUID, Message, array, array_of, boolean, int16, int32, int64, string, uuid


class OffsetFetchRequestTopic(Message):
    name: str = string("0-7", default="")
    partition_indexes: list[int] = array_of(int32, "0-7", default_factory=list)


class OffsetFetchRequestTopics(Message):
    name: str = string("8-9", default="")
    topic_id: bytes = uuid("10+", default=ZERO_UUID)
    partition_indexes: list[int] = array_of(int32, "8+", default_factory=list)


class OffsetFetchRequestGroup(Message):
    group_id: str = string("8+", default="")
    member_id: str | None = string("9+", default=None, nullable="9+")
    member_epoch: int = int32("9+", default=-1)
    topics: list[OffsetFetchRequestTopics] | None = array(
        OffsetFetchRequestTopics, "8+", default_factory=list, nullable="8+"
    )


class OffsetFetchRequest(Message, api_key=9, versions="1-10", flexible="6+"):
    group_id: str = string("0-7", default="")
    topics: list[OffsetFetchRequestTopic] | None = array(
        OffsetFetchRequestTopic, "0-7", default_factory=list, nullable="2-7"
    )
    groups: list[OffsetFetchRequestGroup] = array(OffsetFetchRequestGroup, "8+", default_factory=list)
    require_stable: bool = boolean("7+", default=False)


class OffsetFetchResponsePartition(Message):
    partition_index: int = int32("0-7", default=0)
    committed_offset: int = int64("0-7", default=0)
    committed_leader_epoch: int = int32("5-7", default=-1)
    metadata: str | None = string("0-7", default="", nullable="0-7")
    error_code: int = int16("0-7", default=0)


class OffsetFetchResponseTopic(Message):
    name: str = string("0-7", default="")
    partitions: list[OffsetFetchResponsePartition] = array(OffsetFetchResponsePartition, "0-7", default_factory=list)


class OffsetFetchResponsePartitions(Message):
    partition_index: int = int32("8+", default=0)
    committed_offset: int = int64("8+", default=0)
    committed_leader_epoch: int = int32("8+", default=-1)
    metadata: str | None = string("8+", default="", nullable="8+")
    error_code: int = int16("8+", default=0)


class OffsetFetchResponseTopics(Message):
    name: str = string("8-9", default="")
    topic_id: bytes = uuid("10+", default=ZERO_UUID)
    partitions: list[OffsetFetchResponsePartitions] = array(OffsetFetchResponsePartitions, "8+", default_factory=list)


class OffsetFetchResponseGroup(Message):
    group_id: str = string("8+", default="")
    topics: list[OffsetFetchResponseTopics] = array(OffsetFetchResponseTopics, "8+", default_factory=list)
    error_code: int = int16("8+", default=0)


class OffsetFetchResponse(Message, api_key=9, versions="1-10", flexible="6+"):
    throttle_time_ms: int = int32("3+", default=0)
    topics: list[OffsetFetchResponseTopic] = array(OffsetFetchResponseTopic, "0-7", default_factory=list)
    error_code: int = int16("2-7", default=0)
    groups: list[OffsetFetchResponseGroup] = array(OffsetFetchResponseGroup, "8+", default_factory=list)
