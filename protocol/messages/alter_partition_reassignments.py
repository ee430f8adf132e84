"""AlterPartitionReassignments (API key 45): versions 0-1, flexible from 0.

Moves partitions to other brokers, or cancels such a move (KIP-455).

1: whether the number of replicas may change, which it may where the field is absent.
"""

from oncelog.protocol.schema import Message, array, array_of, boolean, int16, int32, string


class ReassignablePartition(Message):
    partition_index: int = int32("0+", default=0)
    replicas: list[int] | None = array_of(int32, "0+", default=None, nullable="0+")


class ReassignableTopic(Message):
    name: str = string("0+", default="")
    partitions: list[ReassignablePartition] = array(ReassignablePartition, "0+", default_factory=list)


class AlterPartitionReassignmentsRequest(Message, api_key=45, versions="0-1", flexible="0+"):
    timeout_ms: int = int32("0+", default=60_000)
    allow_replication_factor_change: bool = boolean("1+", default=True)
    topics: list[ReassignableTopic] = array(ReassignableTopic, "0+", default_factory=list)


class ReassignablePartitionResponse(Message):
    partition_index: int = int32("0+", default=0)
    error_code: int = int16("0+", default=0)
    error_message: str | None = string("0+", default=None, nullable="0+")


class ReassignableTopicResponse(Message):
    name: str = string("0+", default="")
    partitions: list[ReassignablePartitionResponse] = array(ReassignablePartitionResponse, "0+", default_factory=list)


class AlterPartitionReassignmentsResponse(Message, api_key=45, versions="0-1", flexible="0+"):
    throttle_time_ms: int = int32("0+", default=0)
    allow_replication_factor_change: bool = boolean("1+", default=True)
    error_code: int = int16("0+", default=0)
    error_message: str | None = string("0+", default=None, nullable="0+")
    responses: list[ReassignableTopicResponse] = array(ReassignableTopicResponse, "0+", default_factory=list)
