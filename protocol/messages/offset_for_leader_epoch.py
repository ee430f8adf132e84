"""OffsetForLeaderEpoch (API key 23): versions 2-4, flexible from 4.

Where an epoch of a partition ended: how followers and consumers notice that their log was truncated (KIP-320).

2: the current leader epoch, for fencing; throttle time. 3: the asking replica's id; -2 is a consumer that may see
beyond the high watermark.
"""

from oncelog.protocol.schema import Message, array, int16, int32, int64, string


class OffsetForLeaderPartition(Message):
    partition: int = int32("0+", default=0)
    current_leader_epoch: int = int32("2+", default=-1)
    leader_epoch: int = int32("0+", default=0)


class OffsetForLeaderTopic(Message):
    topic: str = string("0+", default="")
    partitions: list[OffsetForLeaderPartition] = array(OffsetForLeaderPartition, "0+", default_factory=list)


class OffsetForLeaderEpochRequest(Message, api_key=23, versions="2-4", flexible="4+"):
    replica_id: int = int32("3+", default=-2)
    topics: list[OffsetForLeaderTopic] = array(OffsetForLeaderTopic, "0+", default_factory=list)


class EpochEndOffset(Message):
    error_code: int = int16("0+", default=0)
    partition: int = int32("0+", default=0)
    leader_epoch: int = int32("1+", default=-1)
    end_offset: int = int64("0+", default=-1)


class OffsetForLeaderTopicResult(Message):
    topic: str = string("0+", default="")
    partitions: list[EpochEndOffset] = array(EpochEndOffset, "0+", default_factory=list)


class OffsetForLeaderEpochResponse(Message, api_key=23, versions="2-4", flexible="4+"):
    throttle_time_ms: int = int32("2+", default=0)
    topics: list[OffsetForLeaderTopicResult] = array(OffsetForLeaderTopicResult, "0+", default_factory=list)
