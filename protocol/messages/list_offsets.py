"""ListOffsets (API key 2): versions 0-11, flexible from 6.

The offset for a timestamp. Negative timestamps are special: -1 latest, -2 earliest.

0: a list of offsets at which segments begin, newest first. 1: one offset with its timestamp instead of a list. 2:
isolation level; throttle time. 3: throttling moves to the client. 4: leader epochs, for fencing. 5:
OFFSET_NOT_AVAILABLE may be returned. 7: -3, the offset of the largest timestamp (KIP-734). 8: -4, the earliest on local
disk (KIP-405). 9: -5, the last in tiered storage (KIP-1005). 10: a time-out for remote lookups (KIP-1075). 11: -6, the
earliest not yet uploaded (KIP-1023).
"""

from oncelog.protocol.schema import Message, array, array_of, int8, int16, int32, int64, string


class ListOffsetsPartition(Message):
    partition_index: int = int32("0+", default=0)
    current_leader_epoch: int = int32("4+", default=-1)
    timestamp: int = int64("0+", default=0)
    max_num_offsets: int = int32("0", default=1)


class ListOffsetsTopic(Message):
    name: str = string("0+", default="")
    partitions: list[ListOffsetsPartition] = array(ListOffsetsPartition, "0+", default_factory=list)


class ListOffsetsRequest(Message, api_key=2, versions="0-11", flexible="6+"):
    replica_id: int = int32("0+", default=0)
    isolation_level: int = int8("2+", default=0)
    topics: list[ListOffsetsTopic] = array(ListOffsetsTopic, "0+", default_factory=list)
    timeout_ms: int = int32("10+", default=0)


class ListOffsetsPartitionResponse(Message):
    partition_index: int = int32("0+", default=0)
    error_code: int = int16("0+", default=0)
    old_style_offsets: list[int] = array_of(int64, "0", default_factory=list)
    timestamp: int = int64("1+", default=-1)
    offset: int = int64("1+", default=-1)
    leader_epoch: int = int32("4+", default=-1)


class ListOffsetsTopicResponse(Message):
    name: str = string("0+", default="")
    partitions: list[ListOffsetsPartitionResponse] = array(ListOffsetsPartitionResponse, "0+", default_factory=list)


class ListOffsetsResponse(Message, api_key=2, versions="0-11", flexible="6+"):
    throttle_time_ms: int = int32("2+", default=0)
    topics: list[ListOffsetsTopicResponse] = array(ListOffsetsTopicResponse, "0+", default_factory=list)
