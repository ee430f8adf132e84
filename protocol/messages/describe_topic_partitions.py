"""DescribeTopicPartitions (API key 75): versions 0, flexible from 0.

Partitions of topics, in pages: a response may end with a cursor that the next request continues from (KIP-966).

The tagged field ``recovery`` is our own: what a partition without a leader waits for, and which replica it would elect.
"""

from oncelog.protocol.schema import (
    OWN_TAGS,
    ZERO_UUID,
    Message,
    array,
    array_of,
    boolean,
    int16,
    int32,
    int64,
    string,
    struct,
    uuid,
)


class TopicRequest(Message):
    name: str = string("0+", default="")


class Cursor(Message):
    topic_name: str = string("0+", default="")
    partition_index: int = int32("0+", default=0)


class DescribeTopicPartitionsRequest(Message, api_key=75, versions="0", flexible="0+"):
    topics: list[TopicRequest] = array(TopicRequest, "0+", default_factory=list)
    response_partition_limit: int = int32("0+", default=2000)
    cursor: Cursor | None = struct(Cursor, "0+", default=None, nullable="0+")


class RecoveryLogEnd(Message):
    broker_id: int = int32("0+", default=0)
    leader_epoch: int = int32("0+", default=-1)
    offset: int = int64("0+", default=-1)


class PartitionRecovery(Message):
    strategy: str = string("0+", default="")
    waits_for: list[int] = array_of(int32, "0+", default_factory=list)
    elects: int = int32("0+", default=-1)
    decides_at_ms: int = int64("0+", default=-1)
    log_ends: list[RecoveryLogEnd] = array(RecoveryLogEnd, "0+", default_factory=list)


class DescribeTopicPartitionsResponsePartition(Message):
    error_code: int = int16("0+", default=0)
    partition_index: int = int32("0+", default=0)
    leader_id: int = int32("0+", default=0)
    leader_epoch: int = int32("0+", default=-1)
    replica_nodes: list[int] = array_of(int32, "0+", default_factory=list)
    isr_nodes: list[int] = array_of(int32, "0+", default_factory=list)
    eligible_leader_replicas: list[int] | None = array_of(int32, "0+", default=None, nullable="0+")
    last_known_elr: list[int] | None = array_of(int32, "0+", default=None, nullable="0+")
    offline_replicas: list[int] = array_of(int32, "0+", default_factory=list)
    recovery: PartitionRecovery | None = struct(PartitionRecovery, "0+", default=None, tag=OWN_TAGS)


class DescribeTopicPartitionsResponseTopic(Message):
    error_code: int = int16("0+", default=0)
    name: str | None = string("0+", default="", nullable="0+")
    topic_id: bytes = uuid("0+", default=ZERO_UUID)
    is_internal: bool = boolean("0+", default=False)
    partitions: list[DescribeTopicPartitionsResponsePartition] = array(
        DescribeTopicPartitionsResponsePartition, "0+", default_factory=list
    )
    topic_authorized_operations: int = int32("0+", default=-2147483648)


class DescribeTopicPartitionsResponse(Message, api_key=75, versions="0", flexible="0+"):
    throttle_time_ms: int = int32("0+", default=0)
    topics: list[DescribeTopicPartitionsResponseTopic] = array(
        DescribeTopicPartitionsResponseTopic, "0+", default_factory=list
    )
    next_cursor: Cursor | None = struct(Cursor, "0+", default=None, nullable="0+")
