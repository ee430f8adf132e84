"""DescribeTopicPartitions (API key 75): versions 0, flexible from 0.

Partitions of topics, in pages: a response may end with a cursor that the next request continues from (KIP-966).
"""

from oncelog.protocol.schema import ZERO_UUID, Message, array, array_of, boolean, int16, int32, string, struct, uuid


class TopicRequest(Message):
    name: str = string("0+", default="")


class Cursor(Message):
    topic_name: str = string("0+", default="")
    partition_index: int = int32("0+", default=0)


class DescribeTopicPartitionsRequest(Message, api_key=75, versions="0", flexible="0+"):
    topics: list[TopicRequest] = array(TopicRequest, "0+", default_factory=list)
    response_partition_limit: int = int32("0+", default=2000)
    cursor: Cursor | None = struct(Cursor, "0+", default=None, nullable="0+")


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
