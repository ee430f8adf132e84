"""DescribeProducers (API key 61): versions 0, flexible from 0.

The producers that the leader of a partition knows, and where their open transactions begin (KIP-664).
"""

from oncelog.protocol.schema import Message, array, array_of, int16, int32, int64, string


class TopicRequest(Message):
    name: str = string("0+", default="")
    partition_indexes: list[int] = array_of(int32, "0+", default_factory=list)


class DescribeProducersRequest(Message, api_key=61, versions="0", flexible="0+"):
    topics: list[TopicRequest] = array(TopicRequest, "0+", default_factory=list)


class ProducerState(Message):
    producer_id: int = int64("0+", default=0)
    producer_epoch: int = int32("0+", default=0)
    last_sequence: int = int32("0+", default=-1)
    last_timestamp: int = int64("0+", default=-1)
    coordinator_epoch: int = int32("0+", default=0)
    current_txn_start_offset: int = int64("0+", default=-1)


class PartitionResponse(Message):
    partition_index: int = int32("0+", default=0)
    error_code: int = int16("0+", default=0)
    error_message: str | None = string("0+", default=None, nullable="0+")
    active_producers: list[ProducerState] = array(ProducerState, "0+", default_factory=list)


class TopicResponse(Message):
    name: str = string("0+", default="")
    partitions: list[PartitionResponse] = array(PartitionResponse, "0+", default_factory=list)


class DescribeProducersResponse(Message, api_key=61, versions="0", flexible="0+"):
    throttle_time_ms: int = int32("0+", default=0)
    topics: list[TopicResponse] = array(TopicResponse, "0+", default_factory=list)
