"""ListOffsets (API key 2): versions 1-11, flexible from 6."""

from protocol.schema import Message, array, int8, int16, int32, int64, string


class ListOffsetsPartition(Message):
    partition_index: int = int32("0+", default=0)
    current_leader_epoch: int = int32("4+", default=-1)
    timestamp: int = int64("0+", default=0)


class ListOffsetsTopic(Message):
    name: str = string("0+", default="")
    partitions: list[ListOffsetsPartition] = array(ListOffsetsPartition, "0+", default_factory=list)


class ListOffsetsRequest(Message, api_key=2, versions="1-11", flexible="6+"):
    replica_id: int = int32("0+", default=0)
    isolation_level: int = int8("2+", default=0)
    topics: list[ListOffsetsTopic] = array(ListOffsetsTopic, "0+", default_factory=list)
    timeout_ms: int = int32("10+", default=0)


class ListOffsetsPartitionResponse(Message):
    partition_index: int = int32("0+", default=0)
    error_code: int = int16("0+", default=0)
    timestamp: int = int64("1+", default=-1)
    offset: int = int64("1+", default=-1)
    leader_epoch: int = int32("4+", default=-1)


class ListOffsetsTopicResponse(Message):
    name: str = string("0+", default="")
    partitions: list[ListOffsetsPartitionResponse] = array(ListOffsetsPartitionResponse, "0+", default_factory=list)


class ListOffsetsResponse(Message, api_key=2, versions="1-11", flexible="6+"):
    throttle_time_ms: int = int32("2+", default=0)
    topics: list[ListOffsetsTopicResponse] = array(ListOffsetsTopicResponse, "0+", default_factory=list)
